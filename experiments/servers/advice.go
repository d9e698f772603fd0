package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Advice is what autotune doctor says of a server beforehand: whether it would
// gain from suspension at the load that it has.
type Advice struct {
	// Gain is "yes", "no" or "unknown", and Detail what was seen.
	Gain   string `json:"gain"`
	Detail string `json:"detail"`
}

// advise asks autotune doctor, as a user would, about a process under load.
func (o Options) advise(ctx context.Context, pid int) (Advice, error) {
	cmd := exec.CommandContext(ctx, o.Self, "doctor", "--app", fmt.Sprintf("pid=%d", pid), "--json")
	out, err := cmd.Output()
	// It ends with another code than 0 where suspension is not possible yet,
	// which is so before a run.
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Advice{}, fmt.Errorf("start autotune doctor: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		var answer struct {
			Question string `json:"question"`
			Verdict  string `json:"verdict"`
			Detail   string `json:"detail"`
		}
		if err := json.Unmarshal([]byte(line), &answer); err != nil {
			return Advice{}, fmt.Errorf("autotune doctor said %.100q: %w", line, err)
		}
		if answer.Question == "gain" {
			return Advice{Gain: answer.Verdict, Detail: answer.Detail}, nil
		}
	}
	said := ""
	if exit != nil {
		said = string(exit.Stderr)
	}
	return Advice{}, fmt.Errorf("autotune doctor does not say whether process %d would gain: %.500s", pid, said)
}
