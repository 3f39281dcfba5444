//! The generated files that packages install beside the program: its man page and shell completions.

use std::io::{self, Write};

use clap::{Command, ValueEnum};
use clap_complete::Shell;

/// The files that `--generate` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Generated {
    /// The man page, section 1.
    Man,
    /// The completion of bash.
    CompleteBash,
    /// The completion of zsh.
    CompleteZsh,
    /// The completion of fish.
    CompleteFish,
}

impl Generated {
    /// Writes it for a command.
    ///
    /// # Errors
    /// The output takes no more.
    pub fn write(self, mut command: Command, to: &mut dyn Write) -> io::Result<()> {
        let shell = match self {
            Self::Man => return clap_mangen::Man::new(command).render(to),
            Self::CompleteBash => Shell::Bash,
            Self::CompleteZsh => Shell::Zsh,
            Self::CompleteFish => Shell::Fish,
        };
        let name = command.get_name().to_owned();
        // The library panics where it cannot write; memory takes everything.
        let mut made = Vec::new();
        clap_complete::generate(shell, &mut command, name, &mut made);
        to.write_all(&made)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::options::Options;

    #[test]
    fn every_kind_names_the_options() {
        for kind in Generated::value_variants() {
            let mut made = Vec::new();
            kind.write(Options::command(), &mut made).unwrap();
            let text = String::from_utf8(made).unwrap().replace("\\-", "-");
            for option in ["interface", "grpc-server-addr", "max-held-packets"] {
                assert!(text.contains(option), "{kind:?} has no {option}");
            }
        }
    }
}
