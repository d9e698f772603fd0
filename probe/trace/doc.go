// Package trace writes what a run saw to a file and reads it back.
//
// # File
//
// A trace (*.trace.zst) is JSON Lines inside zstd frames (RFC 8878) with
// content checksums, which a reader insists on. One frame holds whole lines and
// is written by one write call, so a crash loses at most the lines since the
// last flush. Every line is an object whose first field, "kind", says what it
// is:
//
//	header      the first line: schema version, host, probes, conditions, run
//	frame       the first line of every later frame: its number and what came before
//	sample      one model.Sample
//	apply       what the kernel answered when the run wrote settings
//	journal     one journal entry of the run, verbatim, in the field "entry"
//	conditions  the host facts of the header again, after they changed
//	events      single polls, epoll_wait returns and requests of a bounded span
//	gap         records that could not be written, by number
//	end         the last line of a trace that was closed, with totals
//
// Fields have the unit in their name; null means not known or not observed,
// and no field is left out. What a run did upon a sample follows it: apply, then
// journal lines. Readers ignore fields that they do not know and
// skip (and count) unknown kinds; everything else needs another schema version,
// which a reader refuses with [ErrSchema].
//
// What a sample has for every queue and every CPU is in columns: an object of
// arrays of the same length, one value for each queue. Apart from that a list is
// an array of objects.
//
// A histogram is a string, empty when nothing was counted, of numbers that have
// one character each unless they are large: the first is the index of the first
// bucket that is not empty, the others are what each bucket counts more than
// the bucket before it, up to the last that is not empty. A difference d is
// written as 2d, or as -2d-1 where it is negative. The digits 0-9, A-Z, a-z
// stand for 0 to 61; one of !#$%&'()*+,-./:;<=>?@[]^_`{|} before a digit adds 62
// for the first of these characters, 124 for the second and so on; and a decimal
// number stands between two ~. The header's "histogram" object has the bucket
// rule. The work and waits histograms have the same form, with packets per poll
// and events per wait for index.
//
// Columns of rounded histograms ([Round]) have another form, a string of all of them
// with a space between one and the next. The numbers of each are the index of the
// first bucket that is not empty, what it counts, and for every bucket after it the
// difference between the level of its count and that of the bucket before, coded as
// above. The levels number the rounded counts: 0 to 7, and then four for each power of
// two; a first count that is not rounded has the level of the next one below. The
// column's name ends in _levels; where it ends in _pairs, each bucket stands for two,
// of which each has half of the count and the first one more where it is odd.
//
// Names that are not UTF-8 have the offending
// bytes replaced by U+FFFD.
//
// Ordinary tools read it:
//
//	zstd -dc run.trace.zst | jq -r 'select(.kind == "sample") | .at_ns as $at
//	    | .queues | [.queue, .softirq_packets, .thread_packets, .busy_packets]
//	    | transpose[] | [$at, .[0], (.[1:] | add)] | @tsv'
//
// A trace holds names of processes, control groups, interfaces and the host, but
// no payload, no network address and no command line; see [Anonymizer].
//
// # Life cycle
//
// A [Writer] comes from [Create] or [NewWriter] and must be closed: Close
// flushes, writes the end record and syncs the file. A [Series] is a trace in
// parts, files that are traces by themselves. A [Reader] comes from [Open],
// [OpenParts] or [NewReader], is a source of samples, and is closed to free its
// decoder. A [Tee] passes on what a run sees, does and decides, and writes it to
// a [Sink], whatever becomes of the write; with a [Rounding] before it, what a run
// sees is what is recorded, rounded. [Steps] group a run's records again
// by the sample that they follow.
//
// [Cut], [Merge] and [Anonymize] make traces of traces; their headers say so
// ([Edit]). [Conditions.Differences] tells whether two recordings compare.
//
// The central type is [Record]: one line, decoded. The package may import
// model, the zstd codec and the standard library.
package trace
