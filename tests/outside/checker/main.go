// Checks a history of calls to the controllers for linearizability (Herlihy and Wing, 1990), with
// porcupine. Each key is a register of its own: a write, a delete and a read of it.
//
//	checker HISTORY [FAILED.html]
//
// HISTORY has one JSON object a line (type line below). The checker prints a summary as JSON. The exit
// status is 0 if the history is linearizable, 1 if it is not (a picture is in FAILED.html), 2 if it
// cannot be read or the check takes too long.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	lineBytesMax = 1 << 20
	checkMax     = 10 * time.Minute
)

// line is one call. Times are of one monotonic clock.
type line struct {
	Client   int     `json:"client"`
	Key      string  `json:"key"`
	Kind     string  `json:"kind"`  // write, delete or read
	Value    *string `json:"value"` // what was written, or read; none: nothing is there
	CalledNs int64   `json:"called_ns"`
	EndedNs  int64   `json:"ended_ns"`
	// done: it happened. unknown: it may happen, at any time from the call on. A call that certainly
	// did not happen is not in the history.
	Outcome string `json:"outcome"`
}

type input struct {
	key, kind string
	value     *string
}

func same(a, b *string) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}

func shown(value *string) string {
	if value == nil {
		return "nothing"
	}
	return *value
}

var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, one := range history {
			key := one.Input.(input).key
			byKey[key] = append(byKey[key], one)
		}
		keys := make([]string, 0, len(byKey))
		for key := range byKey {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		parts := make([][]porcupine.Operation, len(keys))
		for at, key := range keys {
			parts[at] = byKey[key]
		}
		return parts
	},
	Init: func() any { return (*string)(nil) },
	Step: func(state, in, out any) (bool, any) {
		held, asked := state.(*string), in.(input)
		if asked.kind == "read" {
			return same(held, out.(*string)), held
		}
		return true, asked.value
	},
	Equal: func(a, b any) bool { return same(a.(*string), b.(*string)) },
	DescribeOperation: func(in, out any) string {
		asked := in.(input)
		if asked.kind == "read" {
			return fmt.Sprintf("read %s: %s", asked.key, shown(out.(*string)))
		}
		return fmt.Sprintf("%s %s: %s", asked.kind, asked.key, shown(asked.value))
	},
	DescribeState: func(state any) string { return shown(state.(*string)) },
}

func read(path string) ([]porcupine.Operation, map[string]int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	var history []porcupine.Operation
	counts := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 0, 64*1024), lineBytesMax)
	for number := 1; lines.Scan(); number++ {
		var one line
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", number, err)
		}
		switch {
		case one.Kind != "write" && one.Kind != "delete" && one.Kind != "read":
			return nil, nil, fmt.Errorf("line %d: kind %q is not write, delete or read", number, one.Kind)
		case one.Outcome != "done" && one.Outcome != "unknown":
			return nil, nil, fmt.Errorf("line %d: outcome %q is not done or unknown", number, one.Outcome)
		case one.Kind == "delete" && one.Value != nil:
			return nil, nil, fmt.Errorf("line %d: a delete has no value", number)
		case one.EndedNs < one.CalledNs:
			return nil, nil, fmt.Errorf("line %d: it ended before it was called", number)
		}
		counts[one.Kind+" "+one.Outcome]++
		ended := one.EndedNs
		if one.Outcome == "unknown" {
			if one.Kind == "read" {
				continue // It says nothing.
			}
			ended = math.MaxInt64
		}
		var out any
		if one.Kind == "read" {
			out = one.Value
		}
		history = append(history, porcupine.Operation{
			ClientId: one.Client,
			Input:    input{one.Key, one.Kind, one.Value},
			Call:     one.CalledNs,
			Output:   out,
			Return:   ended,
		})
	}
	return history, counts, lines.Err()
}

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: checker HISTORY [FAILED.html]")
		os.Exit(2)
	}
	history, counts, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "checker: %s: %v\n", os.Args[1], err)
		os.Exit(2)
	}
	result, info := porcupine.CheckOperationsVerbose(register, history, checkMax)
	summary, _ := json.Marshal(map[string]any{"calls": counts, "result": string(result)})
	fmt.Println(string(summary))
	if result == porcupine.Ok {
		return
	}
	if len(os.Args) == 3 {
		if err := porcupine.VisualizePath(register, info, os.Args[2]); err != nil {
			fmt.Fprintf(os.Stderr, "checker: %v\n", err)
		}
	}
	if result == porcupine.Illegal {
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "checker: no answer after %s\n", checkMax)
	os.Exit(2)
}
