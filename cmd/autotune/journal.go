package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"autotune/model"
	"autotune/tuner"
)

// maxJournal bounds the journal file; the one before it is kept too.
const maxJournal = 64 << 20

// journalFile appends decisions to journal.jsonl in a state directory.
type journalFile struct {
	path string
	f    *os.File
	size int64
	head journalHead
}

// journalHead is the first line of each run, and of each new file, in the
// journal: what the decisions below it need to be understood.
type journalHead struct {
	Kind     string        `json:"kind"` // "run"
	Started  time.Time     `json:"started"`
	BootTime time.Time     `json:"boot_time"`
	Policy   string        `json:"policy"`
	SLO      time.Duration `json:"slo_ns"`
	Quantile float64       `json:"quantile"`
	Interval time.Duration `json:"interval_ns"`
	Ifaces   []string      `json:"ifnames"`
	Netns    string        `json:"netns"`
}

func openJournal(dir string, head journalHead) (*journalFile, error) {
	j := &journalFile{path: filepath.Join(dir, "journal.jsonl"), head: head}
	return j, j.open()
}

func (j *journalFile) open() error {
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open the journal: %w", err), f.Close())
	}
	j.f, j.size = f, info.Size()
	return printJSON(j, j.head)
}

// Write implements [io.Writer]; each call is a whole line.
func (j *journalFile) Write(line []byte) (int, error) {
	if j.size+int64(len(line)) > maxJournal {
		if err := j.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := j.f.Write(line)
	j.size += int64(n)
	return n, err
}

func (j *journalFile) rotate() error {
	if err := j.f.Close(); err != nil {
		return err
	}
	if err := os.Rename(j.path, j.path+".1"); err != nil {
		return err
	}
	return j.open()
}

func (j *journalFile) Close() error { return j.f.Close() }

// journals records in each of them.
type journals []tuner.Journal

func (js *journals) Record(e tuner.Entry) error {
	for _, j := range *js {
		if err := j.Record(e); err != nil {
			return err
		}
	}
	return nil
}

// journalText prints a decision per line for people.
type journalText struct {
	w      io.Writer
	boot   time.Time
	ifname func(model.Queue) string
}

func (j journalText) Record(e tuner.Entry) error {
	move := e.From.String()
	if e.To != e.From {
		move += " -> " + e.To.String()
	} else if e.Proposed != e.From {
		move += " (not " + e.Proposed.String() + ")"
	}
	by := ""
	if e.Guard != "" {
		by = " by " + e.Guard
	}
	_, err := fmt.Fprintf(j.w, "%s  %s/%d  %s  %s %s%s: %s  [%s]\n",
		j.boot.Add(e.At).Format("15:04:05.000"), j.ifname(e.Queue), e.Queue.Index,
		move, e.Purpose, e.Verdict, by, e.Why, evidenceText(e.Evidence))
	return err
}

func evidenceText(e tuner.Evidence) string {
	text := fmt.Sprintf("%s, %.0f packets/s", model.Count(e.Windows, "window"), e.PacketRate)
	if e.QuantileDelay != nil {
		text += fmt.Sprintf(", p%g %v of %s (SLO %v)", 100*e.Quantile, e.QuantileDelay.Round(time.Microsecond), model.Count(e.DelaySamples, "delay"), e.SLO)
	} else {
		text += ", no delay seen"
	}
	if e.CostPerPacket != nil {
		text += fmt.Sprintf(", %v CPU/packet", e.CostPerPacket.Round(10*time.Nanosecond))
	}
	if e.Utilisation != nil {
		text += fmt.Sprintf(", CPU %.0f%%", 100**e.Utilisation)
	}
	if e.Lost > 0 {
		text += fmt.Sprintf(", %s lost", model.Count(e.Lost, "event"))
	}
	return text
}
