package trace

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"autotune/model"
)

// Anonymizer replaces what tells of people and places in a trace: the names of
// the host, of network interfaces and of processes, control groups, process
// IDs, the boot ID, the identity of network namespaces, the wall-clock time, the
// hardware's bus address and the rest of the kernel's version after its number.
// The same name becomes the same replacement everywhere, in the texts of the
// journal and of errors too, and in every trace that is treated with the same
// salt. Counts, times since boot, settings and everything else that decisions
// follow from stay.
type Anonymizer struct {
	salt []byte
	// words are the replacements found so far, by what they replace in texts.
	words map[string]string
	// ordered are the words, the longest first; nil after one was added.
	ordered []string
}

// NewAnonymizer returns an anonymizer. Who does not know the salt cannot find
// out by trial what a replacement stands for.
func NewAnonymizer(salt []byte) *Anonymizer {
	return &Anonymizer{salt: salt, words: map[string]string{}}
}

func (a *Anonymizer) hash(kind, value string) []byte {
	mac := hmac.New(sha256.New, a.salt)
	mac.Write([]byte(kind + "\x00" + value)) // never fails
	return mac.Sum(nil)
}

// name replaces a name by its kind and 32 bits, and remembers it for texts.
func (a *Anonymizer) name(kind, value string) string {
	if value == "" {
		return ""
	}
	replacement := kind + "-" + hex.EncodeToString(a.hash(kind, value)[:4])
	a.word(value, replacement)
	return replacement
}

func (a *Anonymizer) word(value, replacement string) {
	if _, known := a.words[value]; !known {
		a.words[value] = replacement
		a.ordered = nil
	}
}

// pid replaces a process ID by a number that no process can have, since
// kernel.pid_max is at most 2^22.
func (a *Anonymizer) pid(pid int) int {
	return 1<<22 + int(binary.BigEndian.Uint32(a.hash("pid", strconv.Itoa(pid)))>>2)
}

// netns replaces an inode number by one that is exact in a JSON number.
func (a *Anonymizer) netns(inode uint64) uint64 {
	if inode == 0 {
		return 0
	}
	replacement := uint64(binary.BigEndian.Uint32(a.hash("netns", strconv.FormatUint(inode, 10))))
	a.word(strconv.FormatUint(inode, 10), strconv.FormatUint(replacement, 10))
	return replacement
}

func (a *Anonymizer) queue(q model.Queue) model.Queue {
	q.Netns = a.netns(q.Netns)
	return q
}

// Header returns h without what is replaced. It has to be called before the
// records are treated.
func (a *Anonymizer) Header(h Header) Header {
	h.Host = a.name("host", h.Host)
	if h.BootID != "" {
		h.BootID = a.name("boot", h.BootID)
	}
	h.StartedWall = nil
	if i := strings.IndexFunc(h.Kernel, func(c rune) bool { return c != '.' && (c < '0' || c > '9') }); i >= 0 {
		h.Kernel = h.Kernel[:i]
	}
	h.Conditions = a.conditions(h.Conditions)
	h.Probes = slices.Clone(h.Probes)
	for i := range h.Probes {
		h.Probes[i].Detail = a.text(h.Probes[i].Detail)
	}
	if h.Run != nil {
		run := *h.Run
		run.Originals = a.settings(run.Originals)
		run.Queues = slices.Clone(run.Queues)
		for i := range run.Queues {
			run.Queues[i] = a.queue(run.Queues[i])
		}
		h.Run = &run
	}
	if h.Part != nil {
		part := *h.Part
		part.Recording = a.name("recording", part.Recording)
		h.Part = &part
	}
	h.Edits = append(slices.Clone(h.Edits), Edit{Op: EditAnonymize, Detail: "names, process IDs, boot, namespaces, wall-clock time, bus addresses"})
	return h
}

func (a *Anonymizer) conditions(c Conditions) Conditions {
	c.Devices = slices.Clone(c.Devices)
	for i := range c.Devices {
		d := &c.Devices[i]
		d.Netns = a.netns(d.Netns)
		d.Ifname = a.name("if", d.Ifname)
		d.BusInfo = nil
		d.NAPIs = slices.Clone(d.NAPIs)
		for j := range d.NAPIs {
			d.NAPIs[j].Queue = a.queue(d.NAPIs[j].Queue)
		}
	}
	return c
}

func (a *Anonymizer) settings(list []QueueSettings) []QueueSettings {
	list = slices.Clone(list)
	for i := range list {
		list[i].Queue = a.queue(list[i].Queue)
	}
	return list
}

// Record returns r without what is replaced.
func (a *Anonymizer) Record(r Record) Record {
	switch r.Kind {
	case KindSample:
		r.Sample = a.sample(r.Sample)
	case KindApply:
		o := *r.Outcome
		o.Wanted, o.ReadBack = a.settings(o.Wanted), a.settings(o.ReadBack)
		o.Failures = slices.Clone(o.Failures)
		for i := range o.Failures {
			f := &o.Failures[i]
			f.Queue, f.Op, f.Text = a.queue(f.Queue), a.text(f.Op), a.text(f.Text)
		}
		if o.Error != nil {
			text := a.text(*o.Error)
			o.Error = &text
		}
		r.Outcome = &o
	case KindJournal:
		r.Entry = a.json(r.Entry)
	case KindConditions:
		c := a.conditions(*r.Conditions)
		r.Conditions = &c
	case KindEvents:
		e := a.events(*r.Events)
		r.Events = &e
	default:
	}
	return r
}

func (a *Anonymizer) events(e model.Events) model.Events {
	e.Polls, e.Waits, e.Requests = slices.Clone(e.Polls), slices.Clone(e.Waits), slices.Clone(e.Requests)
	for i := range e.Polls {
		e.Polls[i].Queue = a.queue(e.Polls[i].Queue)
	}
	for i := range e.Waits {
		e.Waits[i].PID = a.pid(e.Waits[i].PID)
	}
	for i := range e.Requests {
		e.Requests[i].Queue = a.queue(e.Requests[i].Queue)
	}
	return e
}

func (a *Anonymizer) sample(s model.Sample) model.Sample {
	s.Queues = slices.Clone(s.Queues)
	for i := range s.Queues {
		s.Queues[i].Queue = a.queue(s.Queues[i].Queue)
	}
	slices.SortFunc(s.Queues, func(x, y model.QueueSample) int { return x.Queue.Compare(y.Queue) })
	s.Apps = slices.Clone(s.Apps)
	for i := range s.Apps {
		app := &s.Apps[i]
		comm, pid := app.Comm, app.PID
		app.PID, app.Cgroup = a.pid(pid), a.cgroup(app.Cgroup)
		app.Comm = a.name("process", comm)
		// This is how reasons name a process (model.SuspensionReadiness).
		a.word(comm+" (pid "+strconv.Itoa(pid)+")", app.Comm+" (pid "+strconv.Itoa(app.PID)+")")
	}
	s.Active = byAnonymous(a, s.Active)
	s.NAPIIDs = byAnonymous(a, s.NAPIIDs)
	absent := byAnonymous(a, s.Absent)
	for q, reason := range absent {
		absent[q] = a.text(reason)
	}
	s.Absent = absent
	return s
}

func byAnonymous[M ~map[model.Queue]V, V any](a *Anonymizer, m M) M {
	if m == nil {
		return nil
	}
	out := make(M, len(m))
	for q, v := range m {
		out[a.queue(q)] = v
	}
	return out
}

// cgroup replaces every component of a path: what two paths share stays
// shared.
func (a *Anonymizer) cgroup(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if p != "" {
			parts[i] = "cg-" + hex.EncodeToString(a.hash("cgroup", p)[:4])
		}
	}
	out := strings.Join(parts, "/")
	if path != out {
		a.word(path, out)
	}
	return out
}

// text replaces the words of a text that are known by now.
func (a *Anonymizer) text(s string) string {
	if a.ordered == nil {
		for w := range a.words {
			a.ordered = append(a.ordered, w)
		}
		slices.SortFunc(a.ordered, func(x, y string) int {
			if len(x) != len(y) {
				return len(y) - len(x)
			}
			return strings.Compare(x, y)
		})
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		found := ""
		if i == 0 || !isWord(s[i-1]) || !isWord(s[i]) {
			for _, w := range a.ordered {
				if strings.HasPrefix(s[i:], w) && (i+len(w) == len(s) || !isWord(s[i+len(w)]) || !isWord(w[len(w)-1])) {
					found = w
					break
				}
			}
		}
		if found == "" {
			out.WriteByte(s[i])
			i++
			continue
		}
		out.WriteString(a.words[found])
		i += len(found)
	}
	return out.String()
}

func isWord(c byte) bool {
	return c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// identifiers are the fields of a journal entry whose values are words of its
// own, which a process may be called by.
func identifiers() []string {
	return []string{"kind", "policy", "purpose", "verdict", "guard"}
}

// json replaces words in the strings of a JSON value, and leaves everything
// else as it is, to the byte. Names of fields stay.
func (a *Anonymizer) json(entry json.RawMessage) json.RawMessage {
	out := make([]byte, 0, len(entry))
	field := ""
	for i := 0; i < len(entry); {
		if entry[i] != '"' {
			out = append(out, entry[i])
			i++
			continue
		}
		end := i + 1
		for end < len(entry) && entry[end] != '"' {
			if entry[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(entry))
		raw := entry[i:end]
		var text string
		after := end
		for after < len(entry) && strings.IndexByte(" \t\r\n", entry[after]) >= 0 {
			after++
		}
		switch isField := after < len(entry) && entry[after] == ':'; {
		case json.Unmarshal(raw, &text) != nil:
		case isField:
			field = text
		case slices.Contains(identifiers(), field):
		default:
			if replaced := a.text(text); replaced != text {
				raw = appendString(nil, replaced)
			}
		}
		out = append(out, raw...)
		i = end
	}
	return out
}

// Anonymize copies what is left of r to the writer that create makes of its
// header.
func Anonymize(ctx context.Context, r *Reader, a *Anonymizer, create func(Header) (*Writer, error), progress func(Stats)) (stats WriterStats, err error) {
	w, err := create(a.Header(r.Header()))
	if err != nil {
		return stats, err
	}
	copyErr := copyRecords(ctx, r, func(record Record) error { return w.WriteRecord(a.Record(record)) }, progress)
	err = errors.Join(copyErr, w.Close())
	return w.Stats(), err
}
