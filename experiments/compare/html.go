package compare

import (
	"fmt"
	"html/template"
	"io"
	"strings"

	"autotune/experiments/report"
	"autotune/experiments/scenarios"
)

// WriteHTML writes the report as one page that needs nothing else: no network,
// script or font. Equal reports give equal bytes.
func (r *Report) WriteHTML(w io.Writer) error {
	page, err := r.page()
	if err != nil {
		return err
	}
	t, err := template.New("report").Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("parse the report's template: %w", err)
	}
	if err := t.Execute(w, page); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

type htmlPage struct {
	CSS        template.CSS
	Plan       string
	Few        bool
	Contenders []string
	Record     []htmlRow
	Sections   []htmlSection
}

type htmlRow struct {
	Name  string
	Cells []string
	// Policy rows are set off from references.
	Policy bool
}

type htmlSection struct {
	Name, About string
	Rows        []htmlRow
	Pareto, CDF template.HTML
	Timelines   []template.HTML
	Seed        uint64
}

func (r *Report) page() (htmlPage, error) {
	p := htmlPage{
		CSS: template.CSS(report.CSS + pageCSS), Plan: r.Plan.describe(), Few: r.Plan.Seeds < leastSeeds,
		Contenders: r.Plan.Contenders(),
	}
	policies := map[string]bool{}
	for _, c := range r.Plan.contenders() {
		policies[c.name] = c.spec != ""
	}
	for _, a := range p.Contenders {
		row := htmlRow{Name: a, Policy: policies[a]}
		for _, b := range p.Contenders {
			row.Cells = append(row.Cells, r.record(a, b))
		}
		p.Record = append(p.Record, row)
	}
	about := map[string]string{AllScenarios: "all scenarios together: per seed the mean of shares and the geometric mean of ratios"}
	for _, name := range r.Plan.Scenarios {
		if f, err := scenarios.Load(name); err == nil {
			about[f.Name] = f.About
		}
	}
	for _, t := range r.Plan.Traces {
		about[t.Name] = t.About
	}
	for _, scenario := range r.rows() {
		s := htmlSection{Name: scenario, About: about[scenario], Seed: r.Plan.FirstSeed}
		for i := range r.Summaries {
			m := &r.Summaries[i]
			if m.Scenario != scenario {
				continue
			}
			s.Rows = append(s.Rows, htmlRow{Name: m.Contender, Policy: policies[m.Contender], Cells: []string{
				interval(m.ViolatingWindows, 100, 1), interval(m.ViolatingRequests, 100, 2), interval1(m.ExcessArea, 0),
				interval(m.CyclesPerRequest, 1e-3, 2), signed(m.VsBestStatic), signed(m.VsOracle),
				interval(m.SavingOverBase, 100, 0), interval(m.SavingOverFixed, 100, 0),
				strings.Join([]string{interval1(m.P50, 0), interval1(m.P99, 0), optional(m.Max)}, " / "),
				optional(m.WorstWindow), interval1(m.Regret.Map(func(v float64) float64 { return v / 1e3 }), 2),
				settlingText(m), interval1(m.Changes, 1), interval1(m.ChangeSteps, 1), interval1(m.RestChanges, 1), interval1(m.Refused, 1),
			}})
		}
		var err error
		if s.Pareto, err = r.paretoPlot(scenario); err != nil {
			return p, err
		}
		if scenario != AllScenarios {
			if s.CDF, err = r.cdfPlot(scenario); err != nil {
				return p, err
			}
			if s.Timelines, err = r.timelinePlots(scenario); err != nil {
				return p, err
			}
		}
		p.Sections = append(p.Sections, s)
	}
	return p, nil
}

// pageCSS puts the plots, which carry colours of their own, on a light ground.
const pageCSS = `
figure { margin: 8px 0 16px; } figcaption { color: var(--muted); font-size: 13px; }
figure svg { width: 100%; height: auto; background: #fff; border-radius: 6px; }
figure svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif !important; }
tr.policy td:first-child { font-weight: 600; }
`

const pageTemplate = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>autotune: comparison of policies</title>
<style>{{.CSS}}</style>
</head>
<body><main>
<h1>Comparison of policies</h1>
<p class="lead">{{.Plan}}.</p>
{{if .Few}}<p class="notice">With fewer than 5 seeds intervals do not have their level: who wins is undecided.</p>{{end}}
<div class="columns">
<p>A window violates when its SLO quantile is above the SLO, or when less than 97% of the requests that were due were served. CPU counts all cycles of the simulated cores, what it takes to leave idle states included. Intervals are bootstrapped over the seeds, 90%.</p>
<p><b>base</b> is the host as found. <b>best-static</b> is, per scenario and seed, the cheapest single setting with at most 1% violating windows, in hindsight; where there is none, the least violating. <b>oracle</b> knows the load of each window as it begins and sets the cheapest setting that holds there in steady state; <b>oracle-transient</b> knows the next window's load too. No policy can know what they do.</p>
</div>
<h2>Wins / ties / losses</h2>
<p>Over the scenarios, row against column. First the share of violating windows beyond 1% counts, then CPU per request; a win is called only where the paired 90% interval excludes zero.</p>
<div class="scroll"><table>
<tr><th></th>{{range .Contenders}}<th>{{.}}</th>{{end}}</tr>
{{range .Record}}<tr{{if .Policy}} class="policy"{{end}}><td>{{.Name}}</td>{{range .Cells}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table></div>
{{range .Sections}}
<h2>{{.Name}}</h2>
<p class="muted">{{.About}}</p>
<div class="scroll"><table>
<tr><th>contender</th><th>violating windows %</th><th>violating requests %</th><th>excess us&middot;s</th><th>kcycles / request</th><th>vs best-static %</th><th>vs oracle %</th><th>of oracle's saving over base %</th><th>over fixed %</th><th>p50 / p99 / max us</th><th>worst window us</th><th>regret kcycles</th><th>settling, windows</th><th>changes / queue</th><th>steps each</th><th>changes / 60 windows at rest</th><th>refused</th></tr>
{{range .Rows}}<tr{{if .Policy}} class="policy"{{end}}><td>{{.Name}}</td>{{range .Cells}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table></div>
<figure>{{.Pareto}}<figcaption>Cost against violations: left and low is better; bars are the intervals.</figcaption></figure>
{{if .CDF}}<figure>{{.CDF}}<figcaption>Share of requests with a delay above, all seeds.</figcaption></figure>{{end}}
{{if .Timelines}}<figure>{{range .Timelines}}{{.}}{{end}}<figcaption>Over time, seed {{.Seed}}.</figcaption></figure>{{end}}
{{end}}
</main></body></html>
`
