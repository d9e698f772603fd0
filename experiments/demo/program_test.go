package demo

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/experiments/servers"
	"autotune/model"
	policies "autotune/model/policy"
)

func TestOptionsOfAProgram(t *testing.T) {
	memcached := servers.Programs("")[0]
	options := usable()
	options.Program, options.ServerCommand = &memcached, nil
	got, err := options.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	var deferral, suspension int
	for _, c := range got.Contenders {
		spec := c.Spec
		if spec == "" {
			spec = "base"
		}
		p, err := policies.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		if fixed, ok := p.(interface{ Settings() model.Settings }); ok {
			switch fixed.Settings().Mode() {
			case model.ModeDeferral:
				deferral++
			case model.ModeSuspension:
				suspension++
			case model.ModeInterrupts:
				t.Errorf("%s is what the base is", c.Name)
			}
		}
	}
	if deferral != 2 || suspension != 2 || got.Contenders[0].Spec != "" || got.Judged != "autotune" {
		t.Errorf("%d settings that defer and %d that suspend, judged %q: %+v", deferral, suspension, got.Judged, got.Contenders)
	}
	var took time.Duration
	for i, p := range got.Phases {
		took += p.Duration
		if want := DefaultPhases()[i]; p.Rate != want.Rate || p.Load != want.Load {
			t.Errorf("phase %q offers %g requests/s, want those of the built-in server, %g", p.Name, p.Rate, want.Rate)
		}
	}
	turns := time.Duration(got.Rounds * len(got.Contenders))
	if total := took*turns + got.Calibration + (turns+1)*2*time.Second; total > 6*time.Minute {
		t.Errorf("a run of defaults takes %v, want at most 6m", total)
	}
	want := ServerInfo{Name: "memcached", Steered: true, Realtime: true}
	if diff := cmp.Diff(want, serverInfo(got.Program)); diff != "" {
		t.Errorf("the record's server (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ServerInfo{Name: BuiltIn, GapsLogged: true}, serverInfo(nil)); diff != "" {
		t.Errorf("the record's built-in server (-want +got):\n%s", diff)
	}
}

func TestAProgramThatIsMissingCannotRun(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	memcached := servers.Programs("")[0]
	options := usable()
	options.Program = &memcached
	if _, err := Run(t.Context(), options); !errors.Is(err, ErrCannotRun) || !strings.Contains(err.Error(), "apt-get install memcached") {
		t.Errorf("got %v, want ErrCannotRun with what to install", err)
	}
}

func TestAProgramThatIsAlwaysBusyIsRefused(t *testing.T) {
	options := usable()
	options.Program = &servers.Program{Name: "busy", Closed: true}
	options.Phases = DefaultPhases()
	if _, err := Run(t.Context(), options); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "the load of busy does not change") {
		t.Errorf("got %v, want ErrOptions", err)
	}
}
