package actuate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"autotune/actuate/placement"
	"autotune/model"
)

// placementFile keeps the originals of what was moved to other CPUs, and what
// is about to be written: both in one file, since what can be moved comes and
// goes while a run lasts. It is only there beside a baseline.
const placementFile = "placement.json"

// placed is the content of [placementFile].
type placed struct {
	Version int          `json:"version"`
	BootID  string       `json:"boot_id"`
	Items   []placedItem `json:"items"`
}

// placedItem is one item with its lists of CPUs. Like a knob it is at one of
// them, or not ours. They are pointers so that a missing one is noticed.
type placedItem struct {
	Item      placement.Item `json:"item"`
	Ifname    string         `json:"ifname"`
	Original  *string        `json:"original"`
	Confirmed *string        `json:"confirmed"`
	Intended  *string        `json:"intended"`
}

func (p *placed) find(i placement.Item) *placedItem {
	if p == nil {
		return nil
	}
	for at := range p.Items {
		if p.Items[at].Item == i {
			return &p.Items[at]
		}
	}
	return nil
}

// owns reports whether a present list is one that was left there.
func (p *placedItem) owns(list string) bool { return list == *p.Confirmed || list == *p.Intended }

func (p *placed) check(b *baseline) error {
	if p.BootID != b.BootID {
		return fmt.Errorf("%w: its boot ID is not that of %s", errStateContents, baselineFile)
	}
	seen := map[placement.Item]bool{}
	for _, i := range p.Items {
		if !i.Item.Valid() || seen[i.Item] || i.Original == nil || i.Confirmed == nil || i.Intended == nil {
			return fmt.Errorf("%w: %v is incomplete or repeated", errStateContents, i.Item)
		}
		for _, list := range []*string{i.Original, i.Confirmed, i.Intended} {
			if _, err := model.ParseCPUList(*list); err != nil {
				return fmt.Errorf("%w: %v: %w", errStateContents, i.Item, err)
			}
		}
		seen[i.Item] = true
	}
	return nil
}

// loadPlaced reads what was moved; nil where nothing ever was.
func (s store) loadPlaced(b *baseline) (*placed, error) {
	var p placed
	err := s.read(placementFile, &p)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := p.check(b); err != nil {
		return nil, &StateError{Path: s.path(placementFile), Err: err}
	}
	return &p, nil
}

// Placed is what became of one move.
type Placed struct {
	placement.Move
	// Err is nil where the item is on its CPUs now. It wraps
	// [model.ErrForeignWrite] where another writer has moved it since, which
	// is said once; [model.ErrGone], [model.ErrReadOnly] or [model.ErrBusy]
	// where it could not be moved.
	Err error
}

// Placement returns how this host's threads and interrupts are read and
// written; nil after Close.
func (h *Host) Placement() placement.System {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.placer
}

// Place moves threads and interrupts to other CPUs, the originals made durable
// first as for every other knob, and returns what became of each move. Where an
// item is already on its CPUs nothing is written, and nothing returned.
//
// An item that was moved and that another writer has moved since is left to
// that writer. Of several moves of one item the first counts. The error means
// that nothing was written.
func (h *Host) Place(ctx context.Context, moves []placement.Move) ([]Placed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.readOnly || h.base == nil && !h.restored:
		return nil, fmt.Errorf("place: the host only reads: %w", model.ErrReadOnly)
	case h.restored:
		return nil, errors.New("place: the originals were put back; open the host anew to tune again")
	}
	var out []Placed
	var todo []placement.Move
	seen := map[placement.Item]bool{}
	for _, m := range moves {
		if seen[m.Item] {
			continue
		}
		seen[m.Item] = true
		present, err := h.placer.Read(m.Item)
		switch {
		case err != nil:
		case present == m.To:
			continue
		case h.leftAlone[m.Item]:
			continue
		default:
			err = h.mayPlace(m.Item, present)
		}
		m.From = present
		if err != nil {
			out = append(out, Placed{Move: m, Err: err})
			continue
		}
		todo = append(todo, m)
	}
	if err := ctx.Err(); err != nil || len(todo) == 0 {
		return out, err
	}
	if err := h.savePlaced(todo); err != nil {
		return out, fmt.Errorf("place: nothing was written: %w", err)
	}
	for _, m := range todo {
		out = append(out, Placed{Move: m, Err: h.move(m)})
	}
	return out, nil
}

// mayPlace returns why an item is another writer's.
func (h *Host) mayPlace(i placement.Item, present string) error {
	record := h.placed.find(i)
	if record == nil || record.owns(present) {
		return nil
	}
	if h.leftAlone == nil {
		h.leftAlone = map[placement.Item]bool{}
	}
	h.leftAlone[i] = true
	return fmt.Errorf("%v was put on CPU %s, and another writer (irqbalance, taskset) has put it on %s: left to that writer: %w",
		i, *record.Confirmed, present, model.ErrForeignWrite)
}

// savePlaced makes durable where each item is and is about to be. Items that no
// longer exist are dropped, so that the record does not grow with every thread
// that comes and goes.
func (h *Host) savePlaced(moves []placement.Move) error {
	next := &placed{Version: stateVersion, BootID: h.base.BootID}
	if h.placed != nil {
		for _, p := range h.placed.Items {
			if _, err := h.placer.Read(p.Item); !errors.Is(err, model.ErrGone) {
				next.Items = append(next.Items, p)
			}
		}
	}
	for _, m := range moves {
		from, to := m.From, m.To
		if p := next.find(m.Item); p != nil {
			p.Confirmed, p.Intended = &from, &to
			continue
		}
		next.Items = append(next.Items, placedItem{Item: m.Item, Ifname: h.ifname(m.Item.Queue), Original: &from, Confirmed: &from, Intended: &to})
	}
	if err := h.files.save(placementFile, next); err != nil {
		return err
	}
	h.placed = next
	return nil
}

func (h *Host) ifname(q model.Queue) string {
	for _, d := range h.devices {
		if d.link.Index == q.Ifindex {
			return d.link.Name
		}
	}
	return ""
}

// move writes one item and reads it back.
func (h *Host) move(m placement.Move) error {
	now, err := h.placer.Read(m.Item)
	if err != nil {
		return err
	}
	if now != m.From {
		return h.mayPlace(m.Item, now)
	}
	h.files.at("place " + m.Item.String())
	if err := h.placer.Write(m.Item, m.To); err != nil {
		return err
	}
	after, err := h.placer.Read(m.Item)
	if err != nil {
		return err
	}
	record := h.placed.find(m.Item)
	if after != m.To {
		// A cpuset or the driver may have its own mind.
		if after != m.From {
			record.Intended = &after
			if saveErr := h.files.save(placementFile, h.placed); saveErr != nil {
				return saveErr
			}
		}
		return fmt.Errorf("%v was put on CPU %s, but is on %s: %w", m.Item, m.To, after, model.ErrReadOnly)
	}
	record.Confirmed = &after
	return nil
}

// restorePlaced puts everything back that is where we put it.
func restorePlaced(ctx context.Context, system placement.System, p *placed) []PlacementReport {
	if p == nil {
		return nil
	}
	// The last that was moved goes back first.
	var out []PlacementReport
	for _, i := range slices.Backward(p.Items) {
		r := PlacementReport{Item: i.Item, Ifname: i.Ifname, Original: *i.Original}
		if err := ctx.Err(); err != nil {
			r.Outcome, r.Detail = OutcomeFailed, err.Error()
		} else {
			r.restore(system, i)
		}
		out = append(out, r)
	}
	return out
}

func (r *PlacementReport) restore(system placement.System, i placedItem) {
	found, err := system.Read(i.Item)
	switch {
	case errors.Is(err, model.ErrGone):
		r.Outcome, r.Detail = OutcomeGone, err.Error()
		return
	case err != nil:
		r.Outcome, r.Detail = OutcomeFailed, err.Error()
		return
	}
	r.Found = &found
	switch {
	case found == *i.Original:
		r.Outcome = OutcomeUnchanged
		return
	case !i.owns(found):
		r.Outcome = OutcomeForeign
		r.Detail = fmt.Sprintf("not where autotune put it (%s, %s): left to whoever moved it", cpusText(*i.Confirmed), cpusText(*i.Intended))
		return
	}
	if err := system.Write(i.Item, *i.Original); err != nil {
		r.Outcome, r.Detail = OutcomeFailed, err.Error()
		if errors.Is(err, model.ErrGone) {
			r.Outcome = OutcomeGone
		}
		return
	}
	after, err := system.Read(i.Item)
	switch {
	case errors.Is(err, model.ErrGone):
		r.Outcome, r.Detail = OutcomeGone, err.Error()
	case err != nil:
		r.Outcome, r.Detail = OutcomeFailed, err.Error()
	case after != *i.Original:
		r.Outcome, r.Detail = OutcomeFailed, fmt.Sprintf("written, but it is on CPU %s", cpusText(after))
	default:
		r.Outcome = OutcomeRestored
	}
}

// PlacementReport tells what became of one thread, interrupt or queue that was
// moved. Lists of CPUs are in the kernel's format, empty where steering is off.
type PlacementReport struct {
	Item placement.Item `json:"item"`
	// Ifname is empty for a thread of an application.
	Ifname   string  `json:"ifname"`
	Outcome  Outcome `json:"outcome"`
	Original string  `json:"original"`
	// Found is where it was before the restore, null where that could not be
	// read.
	Found  *string `json:"found"`
	Detail string  `json:"detail"`
}

func (r PlacementReport) String() string {
	s := r.Item.String()
	if r.Ifname != "" {
		s = r.Ifname + " " + s
	}
	s += ": " + string(r.Outcome)
	if r.Found != nil && *r.Found != r.Original {
		s += fmt.Sprintf(" (found on CPU %s, original %s)", cpusText(*r.Found), cpusText(r.Original))
	}
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	return s
}

func cpusText(list string) string {
	if list == "" {
		return "none"
	}
	return list
}
