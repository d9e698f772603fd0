package demo

// pageTemplate is the report's page.
const pageTemplate = `{{define "cell"}}<td>{{.Value}}{{with .Note}}<small>{{.}}</small>{{end}}{{with .More}}<small>{{.}}</small>{{end}}</td>{{end}}<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>autotune demo: {{.Headline}}</title>
<style>{{.CSS}}</style>
</head>
<body>
<main>
<h1>{{.Headline}}</h1>
<p class="lead">autotune demo of {{.Run.Started.Format "2 January 2006, 15:04 MST"}} on Linux {{.Run.Machine.Kernel}}, {{.Run.Machine.CPUs}} CPUs{{if .Run.Machine.Virtual}} of a virtual machine{{end}}, took {{.Took}}. The tuned device is a {{.Run.Machine.Device}}, not a NIC.</p>
{{with .Run.Partial}}<p class="notice"><b>Partial result.</b> The run ended early: {{.}}.</p>
{{end}}{{with .Verdict}}<section class="verdict {{.Outcome}}">
<p>Verdict on <b>{{.Contender}}</b> against <b>{{.Base}}</b>: <span class="tag {{.Outcome}}">{{.Outcome}}</span></p>
<div class="scroll"><table class="text">
{{range .Criteria}}<tr><td class="keep"><span class="tag {{.Outcome}}">{{.Outcome}}</span></td><td class="keep">{{.Name}}</td><td>{{micro .Reason}}</td></tr>
{{end}}</table></div>
</section>
{{end}}
<h2>CPU per request against {{(index .Contenders 0).Name}}</h2>
<p class="muted">Left is cheaper. Each dot is the geometric mean of the rounds' ratios, the bar its 90% interval; a dashed line is the limit that the judged contender is held against.</p>
<div class="scroll">{{.Forest}}</div>

{{with .Comparisons}}<p>CPU per request over all phases together:</p>
<ul>
{{range .}}<li>{{.}}</li>
{{end}}</ul>
{{end}}<h2>Over time</h2>
<p class="muted">Bold lines are medians of the rounds, window by window; faint ones are single rounds. Load changes where the ground does. All panels of a row share their scale.</p>
<div class="panels" style="{{.Columns}}">
{{range .Contenders}}<div class="head"><h3>{{.Name}}<small>{{if .Spec}}<code>{{.Spec}}</code>{{else}}as found, nothing is changed{{end}}</small></h3></div>
{{end}}{{range .Timelines}}<div class="row"><b>{{.Title}}</b>, {{.Unit}}{{range .Keys}}<span class="key {{.Class}}"></span>{{.Name}}{{end}}{{with .Notes}} ({{.}}){{end}}</div>
{{range .Panels}}<div>{{.}}</div>
{{end}}{{end}}</div>

<h2>Latency and cost</h2>
<div class="scroll"><table>
<thead><tr><th>contender</th><th>p50<br>µs</th><th>p90<br>µs</th><th>p99<br>µs</th><th>achieved<br>requests/s</th><th>CPU<br>µs/request</th><th>CPU against<br>{{(index .Contenders 0).Name}}</th><th>requests<br>excluded</th><th>CPU taken<br>by others</th></tr></thead>
<tbody>
{{range .Phases}}<tr class="group"><td colspan="9">{{.Phase.Name}}: {{commas .Phase.Rate}} requests/s offered for {{.Phase.Duration}}</td></tr>
{{range .Rows}}<tr{{if .Judged}} class="judged"{{end}}><td>{{.Name}}</td>{{range .Cells}}{{template "cell" .}}{{end}}</tr>
{{end}}{{end}}</tbody>
</table></div>
<p class="muted">Means over the rounds, geometric for latency and CPU, with 90% intervals. Raw percentiles include the requests that overlapped a scheduling gap. CPU taken by others is the share of the server's CPU that went to anything but server and NAPI thread, the tuner among it.</p>

<h2>By what means</h2>
<div class="scroll"><table>
<thead><tr><th>contender</th><th>softirq<br>polls/s</th><th>NAPI thread<br>polls/s</th><th>application<br>polls/s</th><th>timer<br>fires/s</th><th>mean flush<br>timeout, µs</th><th>knob changes<br>per round</th><th>p90 of server-side<br>delay, µs</th><th>CPU of probes<br>and tuner</th></tr></thead>
<tbody>
{{range .Phases}}<tr class="group"><td colspan="9">{{.Phase.Name}}</td></tr>
{{range .Rows}}<tr{{if .Judged}} class="judged"{{end}}><td>{{.Name}}</td>{{range .Means}}{{template "cell" .}}{{end}}</tr>
{{end}}{{end}}</tbody>
</table></div>
<p class="muted">As the tuner's probes saw it. CPU of probes and tuner is that of the demo's process, a share of one CPU; what probes cost inside the kernel is part of the CPU per request, for all contenders alike.</p>

<h2>How this was measured</h2>
<div class="columns">
<p>Two network namespaces joined by a veth pair stand in for two hosts. The server's end runs as a real NAPI instance with a thread of its own, pinned to the CPU of the server, so that receive work is done and accounted there; there is no hardware interrupt and no wire. What a setting gains here says how the kernel's receive path behaves, not what a given NIC would gain.</p>
<p>An open-loop client sends requests at moments drawn beforehand and times each from its intended send, so that a slow server cannot slow the load down. CPU per request is the time of the server process and of the NAPI's thread, from the kernel's accounting in nanoseconds, over the answered requests. The process that probes and tunes is not part of it.{{if .Run.Nice}} Server, client and NAPI thread all run at a nice value of {{.Run.Nice}}, so that what else the machine does disturbs them less.{{end}}</p>
<p>Every contender runs under the same probes, the base with a policy that never moves, so that their cost is equal. In each round all contenders run all phases, in an order drawn anew; a contender's settings are put back and verified at the end of its turn, and what its policy learned is kept for the next. A phase counts from its first moment to its last: the time that a tuner takes to adapt is in all of its numbers.</p>
<p>The SLO was fixed before the first round: {{.Run.Calibration.Factor}} times the base's p90 of {{us .Run.Calibration.BaseP90}} under high load, the median of {{.Run.Calibration.Windows}} windows that are not part of the rounds, which gives {{us .Run.Calibration.SLO}} at the client. {{with .Run.Calibration.DelayP90}}The tuner's probes, which see the server's side only, meanwhile had a p90 of {{us .}}; the difference was taken off, so that the tuner was given {{us $.Run.Calibration.Objective}} to meet.{{else}}The tuner was given {{us .Run.Calibration.Objective}} to meet.{{end}}</p>
<p>Excluded from the percentiles are requests that overlapped a moment in which the client{{if not .Run.Server.Installed}}, or the machine under the server,{{end}} did not run for more than 100 µs; they count in the rates, in CPU per request and in the raw percentiles. {{if .Run.Server.Installed}}{{.Run.Server.Name}} does not log when it was not run, so that what the machine took from it is in all numbers. {{end}}Preemption of the server by the NAPI's thread is part of what is measured and excludes nothing. Nothing else was left out.</p>
{{if .Run.Server.Installed}}<p>The server is {{.Run.Server.Name}} as it is installed, with one thread that receives.{{if .Run.Server.Steered}} Its epoll contexts follow the settings of every contender: they prefer busy polling while interrupts are suspended, and are put back and verified at the end of each turn.{{end}}{{if .Run.Server.Realtime}} It and the NAPI's thread run under SCHED_FIFO.{{end}}</p>
{{end}}<p>Intervals are expanded percentile bootstrap intervals over rounds, the unit that is independent; ratios are paired by round. Each claim is about one side, so a 90% interval leaves it 5% of error, and as all criteria must hold at once no correction for their number is needed. With fewer than five rounds such an interval does not exist, and there is no verdict.</p>
</div>
<table class="text">
<tr><td class="keep">machine</td><td>{{.Run.Machine.CPU}}, {{.Run.Machine.CPUs}} CPUs, {{.Run.Machine.Arch}}{{if .Run.Machine.Virtual}}, virtual{{end}}</td></tr>
<tr><td class="keep">kernel</td><td>Linux {{.Run.Machine.Kernel}}</td></tr>
<tr><td class="keep">device</td><td>{{.Run.Machine.Device}}, threaded NAPI</td></tr>
{{if .Run.Server.Installed}}<tr><td class="keep">server</td><td>{{.Run.Server.Name}}</td></tr>
{{end}}<tr><td class="keep">rounds, window, seed</td><td>{{.Run.Rounds}}, {{.Run.Window}}, {{.Seed}}</td></tr>
<tr><td class="keep">order of turns</td><td>{{range $i, $o := .Orders}}{{if $i}}; {{end}}{{$o}}{{end}}</td></tr>
{{range .Parameters}}<tr><td class="keep">{{.Name}}</td><td><code>{{.Value}}</code></td></tr>
{{end}}</table>
</main>
</body>
</html>
`
