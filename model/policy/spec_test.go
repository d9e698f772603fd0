package policy_test

import (
	"errors"
	"strings"
	"testing"

	"autotune/model/policy"
)

func TestParse(t *testing.T) {
	tests := []struct {
		spec string
		name string // of the policy
	}{
		{"base", "base"},
		{"static:defer=100,flush=50us", "static:defer=100,flush=50µs"},
		{"static:defer=0,flush=0us", "static:defer=0,flush=0s"},
		{"static:flush=2ms,defer=5,suspend=20ms", "static:defer=5,flush=2ms,suspend=20ms"},
		{"static:defer=0,flush=50us", "static:defer=0,flush=50µs"},
		{"static:defer=100,flush=20us,suspend=20ms,prefer=on", "static:defer=100,flush=20µs,suspend=20ms,usecs=0s,budget=64,prefer=on"},
		{"static:defer=100,flush=200us,usecs=64us,budget=32,prefer=off", "static:defer=100,flush=200µs,usecs=64µs,budget=32,prefer=off"},
		{"static:case=base", "static:case=base"},
		{"static:case=suspend20", "static:case=suspend20"},
		{"static:case=fullbusy", "static:case=fullbusy"},
		{"random", "random:seed=1,max=200µs"},
		{"random:seed=0,max=1ms", "random:seed=0,max=1ms"},
		{"aimd", "aimd:start=20µs,step=4µs,backoff=0.6,min=0s,max=200µs"},
		{"aimd:step=40us,max=200us", "aimd:start=20µs,step=40µs,backoff=0.6,min=0s,max=200µs"},
		{"aimd:min=30us", "aimd:start=30µs,step=4µs,backoff=0.6,min=30µs,max=200µs"},
		{"greybox", "greybox:objective=min-cpu,prior=generic,grid=1.12,start=50µs,min=8µs,max=400µs"},
		{"greybox:objective=balanced,price=2ns", "greybox:objective=balanced,prior=generic,grid=1.12,start=50µs,min=8µs,max=400µs,price=2ns"},
		{"greybox:objective=min-latency,cpu=0.5,prior=epyc7662-cx5", "greybox:objective=min-latency,prior=epyc7662-cx5,grid=1.12,start=50µs,min=8µs,max=400µs,cpu=0.5"},
		{"greybox:grid=1.25,max=30us", "greybox:objective=min-cpu,prior=generic,grid=1.25,start=30µs,min=8µs,max=30µs"},
		{"aimd:max=10us", "aimd:start=10µs,step=4µs,backoff=0.6,min=0s,max=10µs"},
		{"ladder", "ladder:start=20µs,max=200µs,differ=0.02,tired=10"},
		{"ladder:max=10us", "ladder:start=10µs,max=10µs,differ=0.02,tired=10"},
		{"linucb:seed=7", "linucb:seed=7,alpha=1,epsilon=0.02,max=200µs"},
		{"thompson:draws=8", "thompson:seed=1,spread=1,draws=8,max=200µs"},
		{"safebo:beta=2", "safebo:beta=2,points=60,start=20µs,max=200µs"},
		{"pi", "pi:target=0.9,p=0.2,i=0.5,start=20µs,min=8µs,max=200µs"},
		{"pi:min=30us,p=0", "pi:target=0.9,p=0,i=0.5,start=30µs,min=30µs,max=200µs"},
	}
	for _, tc := range tests {
		p, err := policy.Parse(tc.spec)
		if err != nil {
			t.Errorf("%s: %v", tc.spec, err)
			continue
		}
		if got := p.Name(); got != tc.name {
			t.Errorf("%s is %s, want %s", tc.spec, got, tc.name)
		}
		// A name is a spec of the same policy.
		again, err := policy.Parse(strings.ReplaceAll(p.Name(), "µ", "u"))
		if err != nil || again.Name() != p.Name() {
			t.Errorf("%s does not read as itself: %v", p.Name(), err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct {
		spec, want string
	}{
		{"", `policy "": there is no such policy; possible are aimd, base, greybox, ladder, linucb, pi, random, safebo, static, thompson`},
		{"grey", "possible are aimd, base, greybox, ladder, linucb, pi, random, safebo, static, thompson"},
		{"Static:defer=1", "no such policy"},
		{"base:x=1", `base takes no parameters, not "x=1"`},
		{"base:", "base takes no parameters"},
		{"static", "nothing to set; write static:defer=100"},
		{"static:defer=100", "without flush"},
		{"static:defer=100,flush=50", "flush=50 has no unit; write 50us for microseconds"},
		{"static:defer=100,flush=0", "flush=0 has no unit"},
		{"static:defer=100,flush=soon", "flush=soon is not a duration"},
		{"static:defer=100,flush=-5us", "flush=-5us is out of range"},
		{"static:defer=-1,flush=5us", "defer=-1 is not a whole number from 0 to 2147483647"},
		{"static:defer=2147483648,flush=5us", "from 0 to 2147483647"},
		{"static:defer=1.5,flush=5us", "not a whole number"},
		{"static:defer=100,timeout=50us", `unknown key "timeout"; possible are defer, flush, suspend`},
		{"static:defer=100,defer=100", "defer is given twice"},
		{"static:defer", `"defer" is not key=value`},
		{"static:", `"" is not key=value`},
		{"static:defer=,flush=50us", "defer has no value"},
		{"static:suspend=20ms", "suspend needs defer and flush"},
		{"static:flush=50us,suspend=20ms", "suspend needs defer and flush"},
		{"static:defer=0,flush=50us,suspend=20ms", "no effect with defer or flush at 0"},
		{"random:max=1us", "max=1us is out of range; possible are 8µs to 1s"},
		{"random:seed=x", "seed=x is not a whole number from 0 to 9223372036854775807"},
		{"random:seed=9223372036854775808", "from 0 to 9223372036854775807"},
		{"linucb:epsilon=0", "epsilon=0 is not a number between 0 and 1"},
		{"linucb:alpha=-1", "alpha=-1 is not a number from 0 to 10"},
		{"thompson:draws=0", "draws=0 is not a whole number from 1 to 10000"},
		{"thompson:max=1us", "max=1us is out of range; possible are 8µs to 256µs"},
		{"safebo:points=3", "points=3 is not a whole number from 4 to 500"},
		{"safebo:start=2ms", "start=2ms is above max=200µs"},
		{"ladder:tired=1", "tired=1 is not a whole number from 2 to 1000"},
		{"ladder:differ=2", "differ=2 is not a number between 0 and 1"},
		{"ladder:start=2ms", "start=2ms is above max=200µs"},
		{"pi:i=0", "i=0 is not a number from 0.01 to 2"},
		{"pi:p=NaN", "p=NaN is not a number from 0 to 2"},
		{"pi:min=2ms", "min=2ms is above max=200µs"},
		{"pi:start=5us", "start=5µs is below min=8µs"},
		{"aimd:step=0us", "step=0us is out of range"},
		{"aimd:backoff=1", "backoff=1 is not a number between 0 and 1"},
		{"aimd:backoff=NaN", "not a number between 0 and 1"},
		{"aimd:min=2ms,max=1ms", "min=2ms is above max=1ms"},
		{"aimd:start=2ms", "start=2ms is above max=200µs"},
		{"aimd:start=5us,min=10us", "start=5µs is below min=10µs"},
		{"aimd:max=2s", "max=2s is out of range"},
		{"greybox:objective=cheap", `unknown objective "cheap"; possible are min-cpu, min-latency, balanced`},
		{"greybox:prior=none", `unknown prior "none"; possible are generic, epyc7662-cx5`},
		{"greybox:grid=1", "grid=1 is not a number from 1.02 to 2"},
		{"greybox:price=1ns", "price belongs to objective=balanced"},
		{"greybox:cpu=0.5", "cpu belongs to objective=min-latency"},
		{"greybox:min=50us,max=20us", "min=50µs is above max=20µs"},
		{"greybox:start=1us", "start=1µs is not within min=8µs and max=400µs"},
		{"aimd:flush=50us", `unknown key "flush"; possible are start, step, backoff, min, max`},
	}
	for _, tc := range tests {
		p, err := policy.Parse(tc.spec)
		var spec *policy.SpecError
		switch {
		case err == nil:
			t.Errorf("%q gives %s", tc.spec, p.Name())
		case !errors.As(err, &spec):
			t.Errorf("%q: %T is no SpecError", tc.spec, err)
		case !strings.Contains(err.Error(), tc.want):
			t.Errorf("%q: %q does not contain %q", tc.spec, err, tc.want)
		case strings.Contains(err.Error(), "\n"):
			t.Errorf("%q: %q is more than a line", tc.spec, err)
		}
	}
}

func TestStaticSaysWhetherItSuspends(t *testing.T) {
	for spec, want := range map[string]bool{"static:defer=1,flush=5us": false, "static:defer=1,flush=5us,suspend=1ms": true, "static:case=napibusy": true, "static:case=defer50": false} {
		p, err := policy.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		s, ok := p.(interface {
			Suspends() bool
			NeedsEvidence() bool
		})
		if !ok || s.Suspends() != want || s.NeedsEvidence() {
			t.Errorf("%s: suspends %v", spec, s)
		}
	}
}

func TestKindsParseByTheirNames(t *testing.T) {
	for _, k := range policy.Kinds() {
		if k.Summary == "" || !strings.HasPrefix(k.Usage, k.Name) {
			t.Errorf("%s: usage %q, summary %q", k.Name, k.Usage, k.Summary)
		}
		if strings.ContainsAny(k.Usage, "[") || k.Name == "base" {
			if _, err := policy.Parse(k.Name); err != nil && k.Name != "static" {
				t.Errorf("%s: %v", k.Name, err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"base", "static:defer=100,flush=50us,suspend=20ms", "aimd:start=20us,step=4us,backoff=0.6,min=0us,max=200us", "random:seed=1", "static:flush=50", "a=b:c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := policy.Parse(text)
		if err == nil && p.Name() == "" {
			t.Errorf("%q gives a policy without a name", text)
		}
		var spec *policy.SpecError
		if err != nil && !errors.As(err, &spec) {
			t.Errorf("%q: %T is no SpecError", text, err)
		}
	})
}
