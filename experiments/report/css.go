package report

// CSS is the style sheet of reports and of the charts in them.
const CSS = `
:root {
  color-scheme: light dark;
  --ground: #ffffff; --panel: #f7f8fa; --text: #1b2230; --muted: #5d6879; --rule: #e1e5eb; --shade: #eef1f6;
  --load: #6b7686; --p50: #1b74c9; --p90: #c2500a; --cpu: #6f42c9; --setting: #0b7a58; --limit: #b4232f;
  --met: #157347; --missed: #b4232f; --undecided: #8a5a00;
  --met-ground: #e7f5ed; --missed-ground: #fbeaec; --undecided-ground: #fcf3df;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #12161d; --panel: #191f29; --text: #e4e8ef; --muted: #98a3b5; --rule: #2a3340; --shade: #1e2632;
    --load: #94a0b2; --p50: #62b0f5; --p90: #f59a55; --cpu: #b296f5; --setting: #49c79a; --limit: #f2737d;
    --met: #5fd39b; --missed: #f2858d; --undecided: #e5b85c;
    --met-ground: #14291f; --missed-ground: #341a1f; --undecided-ground: #2f2612;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 28px 24px 56px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 36px 0 10px; }
h3 { font-size: 14px; margin: 0; font-weight: 600; }
p { margin: 6px 0 10px; max-width: 78ch; }
.columns { columns: 2 420px; column-gap: 36px; margin-bottom: 14px; }
.columns p { margin-top: 0; break-inside: avoid; }
.lead, .muted { color: var(--muted); }
code { font: 0.92em ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; background: var(--shade); padding: 1px 4px; border-radius: 4px; }
.verdict { border: 1px solid var(--rule); border-left-width: 6px; border-radius: 8px; padding: 14px 18px 8px; margin: 18px 0; }
.verdict.met { border-left-color: var(--met); } .verdict.missed { border-left-color: var(--missed); } .verdict.undecided { border-left-color: var(--undecided); }
.verdict > p { font-size: 17px; margin-top: 0; max-width: none; }
.verdict table td { vertical-align: top; }
.notice { background: var(--undecided-ground); border-radius: 8px; padding: 10px 14px; }
.tag { display: inline-block; min-width: 5.6em; text-align: center; padding: 0 8px; border-radius: 10px; font-size: 13px; font-weight: 600; }
.tag.met { color: var(--met); background: var(--met-ground); } .tag.missed { color: var(--missed); background: var(--missed-ground); } .tag.undecided { color: var(--undecided); background: var(--undecided-ground); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th:last-child, td:last-child { padding-right: 0; }
th { text-align: right; font-weight: 600; color: var(--muted); padding: 5px 7px; vertical-align: bottom; font-size: 13px; line-height: 1.3; }
td { padding: 5px 7px; text-align: right; border-top: 1px solid var(--rule); font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, td:first-child, table.text td, table.text th { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
table.text td { white-space: normal; }
table.text td.keep { white-space: nowrap; }
tr.group td { border-top: 2px solid var(--rule); padding-top: 14px; font-weight: 600; }
tr.judged td:first-child { font-weight: 600; }
td small { display: block; color: var(--muted); font-size: 11.5px; line-height: 1.25; }
.panels { display: grid; gap: 2px 18px; overflow-x: auto; }
.panels .head { padding: 4px 0 2px; }
.panels .head small { color: var(--muted); font-weight: 400; margin-left: 6px; }
.panels .row { grid-column: 1 / -1; padding: 8px 0 0; font-size: 13px; color: var(--muted); }
.panels .row b { color: var(--text); font-weight: 600; }
.key { display: inline-block; width: 18px; height: 3px; border-radius: 2px; vertical-align: middle; margin: 0 4px 0 10px; }
.key.load { background: var(--load); } .key.p50 { background: var(--p50); } .key.p90 { background: var(--p90); } .key.cpu { background: var(--cpu); } .key.setting { background: var(--setting); } .key.limit { background: var(--limit); }
svg.chart { display: block; width: 100%; height: auto; font-family: inherit; }
svg.forest { max-width: 860px; }
svg.chart text { fill: var(--muted); font-size: 11px; }
svg.chart .gridline { stroke: var(--rule); stroke-width: 1; }
svg.chart .zero { stroke: var(--muted); stroke-width: 1; }
svg.chart .rule { stroke: var(--rule); stroke-width: 1; }
svg.chart .band { fill: none; } svg.chart .band.shaded { fill: var(--shade); }
svg.chart .limit { stroke: var(--limit); stroke-width: 1.2; stroke-dasharray: 4 3; }
svg.chart text.limit-label { fill: var(--limit); }
svg.chart text.name { fill: var(--text); font-size: 13px; }
svg.chart text.value { fill: var(--text); font-size: 12px; font-variant-numeric: tabular-nums; }
svg.chart .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg.chart .line.faint { stroke-width: 0.9; opacity: 0.32; }
svg.chart .line.load { stroke: var(--load); } svg.chart .line.p50 { stroke: var(--p50); } svg.chart .line.p90 { stroke: var(--p90); }
svg.chart .line.cpu { stroke: var(--cpu); } svg.chart .line.setting { stroke: var(--setting); }
svg.chart .above { opacity: 0.6; } svg.chart .above.p50 { fill: var(--p50); } svg.chart .above.p90 { fill: var(--p90); } svg.chart .above.cpu { fill: var(--cpu); }
svg.chart .mark { stroke: var(--muted); stroke-width: 2.4; fill: var(--muted); }
svg.chart .mark.met { stroke: var(--met); fill: var(--met); } svg.chart .mark.missed { stroke: var(--missed); fill: var(--missed); } svg.chart .mark.undecided { stroke: var(--undecided); fill: var(--undecided); }
@media print { main { max-width: none; } .panels { overflow: visible; } }
`
