"""The view as an HTML page that loads itself again: one file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from seu_bench._version import __version__
from seu_bench.cli.progress import duration
from seu_bench.cli.watch.frame import FINISHED, STATES, accuracy_text, finished_cells
from seu_bench.cli.watch.view import PlanView, RunView, View
from seu_bench.results.record_metrics import METRICS

_STYLE: Final = """
:root { color-scheme: light dark; --text: #1b1b1b; --ground: #ffffff; --soft: #595959; --line: #d0d0d0;
  --running: #00616e; --failed: #a3160f; --interrupted: #7a4b00; --finished: #1d6425; }
@media (prefers-color-scheme: dark) { :root { --text: #ececec; --ground: #161616; --soft: #b0b0b0; --line: #484848;
  --running: #6fd3e3; --failed: #ff9c94; --interrupted: #f0bf6b; --finished: #8fd896; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; color: var(--text); background: var(--ground);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; margin: 0; }
h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem; } h3 { font-size: 1rem; margin: 0; }
p { margin: .2rem 0; } .soft { color: var(--soft); }
.running { color: var(--running); } .failed, .unreadable { color: var(--failed); }
.interrupted { color: var(--interrupted); } .finished { color: var(--finished); }
article { border-top: 1px solid var(--line); padding: .6rem 0; }
.bar { display: flex; flex-wrap: wrap; align-items: center; gap: .1rem .8rem; }
progress { flex: 0 1 18rem; min-width: 8rem; height: .9rem; accent-color: var(--running); }
code { display: block; font: .875rem/1.5 ui-monospace, monospace; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { padding: .25rem .8rem .25rem 0; border-top: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 14rem; font-weight: normal; }
thead th, thead th:first-child { border: 0; font-weight: bold; }
button { font: inherit; color: inherit; background: none; border: 1px solid var(--soft);
  border-radius: .25rem; padding: .2rem .8rem; min-height: 2rem; }
:focus-visible { outline: 3px solid var(--running); outline-offset: 2px; }
"""

#: Loads the page again, lets a reader hold it, and says when it has not been written for long.
_SCRIPT: Final = """
const { every, written } = document.documentElement.dataset;
const button = document.querySelector('button'), late = document.querySelector('[role=status]');
const age = Date.now() / 1000 - Number(written);
if (age > 60 + 5 * Number(every)) {
  late.textContent = `This page was last written ${Math.round(age / 60)} min ago: seu-bench watch may have ended.`;
}
let timer;
const run = () => { timer = setTimeout(() => location.reload(), 1000 * Number(every)); };
button.hidden = false;
button.addEventListener('click', () => {
  const held = button.getAttribute('aria-pressed') !== 'true';
  button.setAttribute('aria-pressed', String(held));
  clearTimeout(timer);
  if (!held) location.reload();
});
run();
"""


def watch_page(view: View, every: float | None, most: int = 0) -> str:
    """Return the page.

    Args:
        view: what there is.
        every: seconds after which it loads itself again; ``None``: it does not any more.
        most: runs of each list; 0: all that there are.
    """
    return "\n".join(_document(view, every, most)) + "\n"


def _document(view: View, every: float | None, most: int) -> Iterator[str]:
    seconds = None if every is None else max(1, round(every))
    data = "" if seconds is None else f' data-every="{seconds}" data-written="{view.time:.0f}"'
    policy = f"default-src 'none'; style-src '{_digest(_STYLE)}'"
    policy += "" if seconds is None else f"; script-src '{_digest(_SCRIPT)}'"
    shown = ", ".join(f"{number:,} {state}" for state in STATES if (number := view.counts.get(state, 0)))
    yield f'<!doctype html>\n<html lang="en"{data}>\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    if seconds is not None:
        yield f'<noscript><meta http-equiv="refresh" content="{seconds}"></noscript>'
    yield f"<title>{escape(shown or 'no runs')} - {escape(str(view.results))}</title>"
    yield f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>"
    yield f"<h1>Runs in {escape(str(view.results))}</h1>"
    moment = time.localtime(view.time)
    yield (
        f'<p class="soft">As of <time datetime="{time.strftime("%Y-%m-%dT%H:%M:%S%z", moment)}">'
        f"{time.strftime('%Y-%m-%d %H:%M:%S', moment)}</time>, seu-bench {escape(__version__)}. "
        f"{'This page is final.' if seconds is None else f'This page loads itself again every {seconds} s.'}</p>"
    )
    if seconds is not None:
        yield '<p><button type="button" aria-pressed="false" hidden>Hold this page</button></p>'
        yield '<p role="status" class="interrupted"></p>'
    runs = sum(view.counts.values())
    yield f"<p>{runs:,} run{'s' * (runs != 1)}{': ' * bool(runs)}{_counts(view.counts)}</p>"
    if view.notice:
        yield f"<p>{escape(view.notice)}</p>"
    for plan in view.plans:
        yield from _plan(plan)
    yield from _list("Running", view.running, view.counts["running"], most)
    yield from _list("Failed or interrupted", view.stopped, view.stopped_count, most)
    yield from _finished(view.finished[: most or None], view.counts["finished"])
    yield "</main>"
    if seconds is not None:
        yield f"<script>{_SCRIPT}</script>"
    yield "</body>\n</html>"


def _digest(text: str) -> str:
    """What the page's policy knows its own style and script by; nothing else is run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _counts(counts: Mapping[str, int]) -> str:
    parts = [f'<span class="{state}">{counts[state]:,} {state}</span>' for state in STATES if counts.get(state)]
    return ", ".join(parts)


def _bar(share: float | None, name: str, note: str) -> str:
    """A bar with its name for those who do not see it; ``note`` is HTML."""
    percent = "" if share is None else f"{share:.0%}"
    value = "" if share is None else f' value="{share:.4f}"'
    return (
        f'<div class="bar"><progress max="1"{value} aria-label="{escape(name)}">{percent}</progress>'
        f"<span>{percent}{', ' * bool(percent)}{note}</span></div>"
    )


def _plan(plan: PlanView) -> Iterator[str]:
    ended = plan.counts["finished"]
    note = f"{ended:,} of {plan.total:,} finished"
    others = _counts({state: number for state, number in plan.counts.items() if state != "finished"})
    note += f", {others}" if others else ""
    if plan.remaining is not None:
        note += f", {duration(plan.remaining)} left"
    elif plan.counts["pending"] and not plan.counts["running"]:
        note += ", nothing is running"
    yield f"<h2>Last {plan.kind}</h2>"
    yield _bar(ended / plan.total, f"{plan.kind}: jobs finished", note)


def _list(title: str, runs: Sequence[RunView], total: int, most: int) -> Iterator[str]:
    shown = runs[: most or None]
    if not shown:
        return
    yield f"<section>\n<h2>{_title(title, len(shown), total)}</h2>"
    for run in shown:
        yield "<article>"
        yield f'<h3><span class="{run.state}">{run.state}</span> {escape(run.title)}</h3>'
        if run.state == "running":
            yield _bar(run.share, f"{run.title}: share that is done", f"{duration(run.remaining)} left")
        lines = [run.reason, run.where, accuracy_text(run) if run.accuracies and run.state == "running" else ""]
        yield from (f"<p>{escape(line)}</p>" for line in lines if line)
        if run.resume:
            yield f"<p>To resume:</p>\n<code>{escape(run.resume)}</code>"
        yield "</article>"
    yield "</section>"


def _title(title: str, shown: int, total: int) -> str:
    return title if shown == total else f"{title} ({shown:,} of {total:,})"


def _finished(runs: Sequence[RunView], total: int) -> Iterator[str]:
    if not runs:
        return
    title = _title("Finished last", len(runs), total)
    headings = ["run", *[METRICS[name].column or name for name in FINISHED], "time"]
    yield f'<section>\n<h2 id="finished">{title}</h2>'
    yield '<div class="scroll" role="region" aria-labelledby="finished" tabindex="0">\n<table>'
    yield "<thead><tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in headings) + "</tr></thead>"
    yield "<tbody>"
    for run in runs:
        row = "".join(f"<td>{escape(cell)}</td>" for cell in finished_cells(run))
        yield f'<tr><th scope="row">{escape(run.title)}</th>{row}</tr>'
    yield "</tbody>\n</table>\n</div>\n</section>"
