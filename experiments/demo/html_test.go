package demo

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
)

// TestReportNeedsNothingElse looks for whatever would make a browser fetch
// something, or run something.
func TestReportNeedsNothingElse(t *testing.T) {
	page := string(html(t, generated(1)))
	for _, pattern := range []string{
		`(?i)https?:`, `(?i)\bsrc\s*=`, `(?i)<link\b`, `(?i)<script\b`, `(?i)@import`, `(?i)url\(`, `(?i)<iframe\b`, `(?i)\bxlink:`, `(?i)//[a-z0-9.-]+\.[a-z]{2,}/`,
	} {
		if found := regexp.MustCompile(pattern).FindString(page); found != "" {
			t.Errorf("the page holds %q", found)
		}
	}
	if n := len(page); n > 1<<20 {
		t.Errorf("the page has %d bytes, want at most 1 MiB", n)
	}
}

func TestReportSaysWhatItMust(t *testing.T) {
	text := func(page string) string {
		page = regexp.MustCompile(`(?s)<style>.*?</style>`).ReplaceAllString(page, "")
		return strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")), " ")
	}
	tests := []struct {
		name   string
		result Result
		want   []string
	}{
		{"whole", generated(1), []string{
			"Autotune paid: every criterion is met",
			"a veth, not a NIC", "there is no hardware interrupt and no wire",
			"static:defer=100,flush=200us", "aimd",
			"6.18.1", "Intel(R) Xeon(R) Processor, 2 CPUs, amd64, virtual",
			"5, 250ms, 1", // rounds, window, seed
			"start=20us,step=4us,backoff=0.6,min=0us,max=200us",
			"SLO 380 \u00b5s", "which gives 380 \u00b5s at the client", "the tuner was given 342 \u00b5s to meet",
			"Excluded from the percentiles are requests that overlapped",
			"application polls/s", "timer fires/s",
		}},
		{"interrupted", interrupted(1), []string{
			"Undecided whether autotune pays", "Partial result. The run ended early: interrupted in round 3", "2 complete rounds of base and autotune; 5 are needed",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := text(string(html(t, tt.result)))
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("the page does not say %q", want)
				}
			}
		})
	}
}

func TestReportChartsAreWellFormed(t *testing.T) {
	page := string(html(t, generated(1)))
	charts := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	// One for the ratios, and four quantities of three contenders.
	if len(charts) != 1+4*3 {
		t.Errorf("%d charts, want 13", len(charts))
	}
	for i, chart := range charts {
		decoder := xml.NewDecoder(strings.NewReader(chart))
		for {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("chart %d: %v", i, err)
			}
		}
		if strings.Contains(chart, "NaN") || strings.Contains(chart, "Inf") {
			t.Errorf("chart %d holds a coordinate that is no number", i)
		}
		if i > 0 && strings.Count(chart, `class="line`) < MinRounds+1 {
			t.Errorf("chart %d lacks a line for each round and one for their median", i)
		}
	}
}

func TestReportEscapesNames(t *testing.T) {
	result := generated(1)
	const evil = `<script>alert("x")</script>`
	result.Run.Contenders[1].Name, result.Run.Contenders[1].Spec = evil, evil
	for i := range result.Rows {
		if result.Rows[i].Contender == "fixed 200us" {
			result.Rows[i].Contender = evil
		}
	}
	if page := string(html(t, result)); strings.Contains(page, "<script") {
		t.Error("a contender's name became an element")
	}
}
