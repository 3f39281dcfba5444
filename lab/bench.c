/* SPDX-License-Identifier: Apache-2.0
 *
 * The work that lab/bench measures: bench KIND COUNT [INTERFACE...]. It cannot time itself, as its
 * clock is virtual: lab/bench takes the processor's time on the host.
 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FRAME_BYTES 1514
#define GAP_NS 24288 /* of such frames at 500 Mbit/s */

static long count;
static int pair[2];

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void sleep_until(struct timespec *due, long later_ns)
{
    due->tv_nsec += later_ns;
    if (due->tv_nsec >= 1000000000) {
        due->tv_nsec -= 1000000000;
        due->tv_sec++;
    }
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, due, NULL);
}

static int packet_socket(const char *interface, int protocol)
{
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(protocol),
        .sll_ifindex = if_nametoindex(interface),
    };
    int fd = socket(AF_PACKET, SOCK_RAW, htons(protocol));

    must(fd >= 0, "socket");
    must(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, interface);
    return fd;
}

/* The cheapest of system calls */
static void null_calls(void)
{
    for (long i = 0; i < count; i++)
        syscall(SYS_getppid);
}

/* Reads of the clock, with an idle moment now and then, as programs have */
static void clock_reads(void)
{
    struct timespec now;

    for (long i = 0; i < count; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (i % 1000 == 999)
            usleep(1);
    }
}

static void *echo(void *unused)
{
    char byte;

    for (long i = 0; i < count; i++)
        must(read(pair[1], &byte, 1) == 1 && write(pair[1], &byte, 1) == 1, "echo");
    return unused;
}

/* A byte there and back: four system calls and two switches */
static void ping_pong(int threads)
{
    char byte = 'x';
    pthread_t thread;

    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    if (threads) {
        pthread_create(&thread, NULL, echo, NULL);
    } else if (fork() == 0) {
        echo(NULL);
        _exit(0);
    }
    for (long i = 0; i < count; i++)
        must(write(pair[0], &byte, 1) == 1 && read(pair[0], &byte, 1) == 1, "ping");
}

static void forks(void)
{
    for (long i = 0; i < count; i++) {
        if (fork() == 0)
            _exit(0);
        wait(NULL);
    }
}

/* Full frames, evenly spaced */
static void generate(const char *interface)
{
    char frame[FRAME_BYTES] = { [0 ... 5] = (char)0xff, [12] = (char)0x88, [13] = (char)0xb5 };
    int fd = packet_socket(interface, 0);
    struct timespec due;

    prctl(PR_SET_TIMERSLACK, 1);
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (long i = 0; i < count; i++) {
        sleep_until(&due, GAP_NS);
        must(send(fd, frame, sizeof(frame), 0) == sizeof(frame), "send");
    }
}

/* The simplest of switches: three system calls for each frame */
static void forward(const char *from, const char *to)
{
    int in = packet_socket(from, ETH_P_ALL), out = packet_socket(to, 0);
    struct pollfd ready = { .fd = in, .events = POLLIN };
    char frame[2048];

    for (long i = 0; i < count; i++) {
        must(poll(&ready, 1, -1) == 1, "poll");
        ssize_t bytes = recv(in, frame, sizeof(frame), 0);
        must(bytes > 0 && send(out, frame, bytes, 0) == bytes, "forward");
    }
}

int main(int argc, char **argv)
{
    const char *kind = argc > 2 ? argv[1] : "";

    count = argc > 2 ? atol(argv[2]) : 0;
    if (!strcmp(kind, "null"))
        null_calls();
    else if (!strcmp(kind, "clock"))
        clock_reads();
    else if (!strcmp(kind, "threads") || !strcmp(kind, "processes"))
        ping_pong(kind[0] == 't');
    else if (!strcmp(kind, "fork"))
        forks();
    else if (!strcmp(kind, "generate") && argc == 4)
        generate(argv[3]);
    else if (!strcmp(kind, "forward") && argc == 5)
        forward(argv[3], argv[4]);
    else
        return 2;
    return 0;
}
