//! `towpath man`: manual pages, generated from the same definitions as `--help`.

use anyhow::Context;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

use crate::output::{Exit, Output, done};

#[derive(Args)]
pub(crate) struct Man {
    /// Output directory, created if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(crate) fn run(man: &Man, output: &Output) -> Exit {
    let pages = write(man).with_context(|| format!("cannot write to {}", man.out.display()))?;
    output.show(&json!({ "pages": pages, "out": man.out }), |_| {
        format!(
            "wrote {pages} pages to {}; read them with: man {}/towpath.1",
            man.out.display(),
            man.out.display()
        )
    });
    done()
}

/// One page per command. Only the first lists the settings of the process: fifty flags on every page would
/// hide the three that matter.
fn write(man: &Man) -> std::io::Result<usize> {
    std::fs::create_dir_all(&man.out)?;
    let mut whole = crate::command_line().disable_help_subcommand(true);
    whole.build();
    let mut pages = 0;
    let mut waiting = vec![("towpath".to_owned(), whole)];
    while let Some((name, command)) = waiting.pop() {
        let children: Vec<_> = command.get_subcommands().filter(|child| !child.is_hide_set()).collect();
        waiting
            .extend(children.iter().map(|child| (format!("{name}-{}", child.get_name()), (*child).clone())));
        let is_first = name == "towpath";
        let command = command.mut_args(|argument| match argument.get_env() {
            Some(_) => argument.hide(!is_first),
            None => argument,
        });
        let title: &'static str = name.leak();
        let mut page = vec![];
        clap_mangen::Man::new(command.name(title)).render(&mut page)?;
        std::fs::write(man.out.join(format!("{title}.1")), page)?;
        pages += 1;
    }
    Ok(pages)
}
