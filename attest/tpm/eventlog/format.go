package eventlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/refusal"
)

// specID begins the data of the first event of a log in the format of TPM 2.0: TCG PC Client
// Platform Firmware Profile 1.06, 10.4.5.1.
const specID = "Spec ID Event03\x00"

// entry is one event, as the log has it.
type entry struct {
	pcr   int
	typ   Type
	sums  []byte                // the digests as they stand in the log, each after its algorithm
	sizes map[tpm2.TPMAlgID]int // of the digests; nil: sums is one of SHA-1
	data  []byte
}

// digest returns the event's first digest of an algorithm, or nil.
func (e *entry) digest(alg tpm2.TPMAlgID) []byte {
	for of, digest := range e.digests {
		if of == alg {
			return digest
		}
	}
	return nil
}

// digests iterates over the digests in order, each with its algorithm.
func (e *entry) digests(yield func(alg tpm2.TPMAlgID, digest []byte) bool) {
	if e.sizes == nil {
		yield(tpm2.TPMAlgSHA1, e.sums)
		return
	}
	for r := (reader{rest: e.sums}); len(r.rest) > 0; {
		alg := tpm2.TPMAlgID(r.uint16())
		if !yield(alg, r.take(uint32(e.sizes[alg]))) {
			return
		}
	}
}

// parseLog reads the events of a log in the format of TPM 2.0 or of TPM 1.2: profile 1.06, 10.2. It
// leaves to the quote which digests, of which banks, there must be. After the last event one byte
// may be repeated, as firmware clears the area that it writes its log into.
func parseLog(log []byte) ([]entry, error) {
	r := reader{rest: log}
	if r.cleared(1) {
		return nil, checkEncoding.Refuse(fmt.Sprintf("%d bytes %#02x", len(log), log[0]),
			"events: the firmware of that machine wrote none into its log")
	}
	first := r.event(nil)
	if r.short {
		return nil, malformed(0, 0, "a log that ends in its first event")
	}
	sizes, err := digestSizes(&first)
	if err != nil {
		return nil, err
	}
	entries, smallest := []entry{first}, 32
	if sizes != nil {
		entries, smallest = make([]entry, 0, len(log)/128), 16 // most events are longer than a digest and its frame
	}
	for n := 1; len(r.rest) > 0 && !r.cleared(smallest); n++ {
		at := len(log) - len(r.rest)
		e := r.event(sizes)
		switch {
		case r.unknown != 0:
			return nil, malformed(n, at, fmt.Sprintf("a digest of algorithm %#04x, which the header does not name", uint16(r.unknown)))
		case r.short:
			return nil, malformed(n, at, "an event that is longer than the log")
		case e.pcr == 0 && e.typ == 0 && len(e.data) == 0 && e.blank():
			return nil, malformed(n, at, "zeros where an event should begin")
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func malformed(n, at int, got string) error {
	return checkEncoding.Refuse(fmt.Sprintf("%s (event %d, at byte %d)", got, n, at),
		"one event after the other; a log that pads them to one size, as some releases of coreboot write it, takes an update of the firmware")
}

// blank reports whether no digest of the event has a bit set.
func (e *entry) blank() bool {
	for _, d := range e.digests {
		if len(bytes.Trim(d, "\x00")) != 0 {
			return false
		}
	}
	return true
}

// hashSizes has the sizes of the TCG Algorithm Registry, for digests that a header does not name.
var hashSizes = map[tpm2.TPMAlgID]int{
	tpm2.TPMAlgSHA1: 20, tpm2.TPMAlgSHA256: 32, tpm2.TPMAlgSHA384: 48, tpm2.TPMAlgSHA512: 64,
	tpm2.TPMAlgSM3256: 32, tpm2.TPMAlgSHA3256: 32, tpm2.TPMAlgSHA3384: 48, tpm2.TPMAlgSHA3512: 64,
}

// digestSizes reads the header, which says how long the digests of each algorithm are. It
// returns nil for a log in the format of TPM 1.2, which has no such header.
func digestSizes(first *entry) (map[tpm2.TPMAlgID]int, error) {
	data, ok := bytes.CutPrefix(first.data, []byte(specID))
	if !ok || first.typ != typeNoAction {
		return nil, nil
	}
	r := reader{rest: data}
	r.take(8) // platform class, version, errata, size of UINTN
	sizes := maps.Clone(hashSizes)
	for n := r.uint32(); n > 0 && !r.short; n-- {
		alg := tpm2.TPMAlgID(r.uint16())
		sizes[alg] = int(r.uint16())
	}
	if r.short {
		return nil, &refusal.Error{Check: checkEncoding, Got: "a header that is shorter than its list of algorithms", Want: "a whole one"}
	}
	return sizes, nil // what follows is the vendor's
}

// reader reads little-endian numbers from the front of rest. Once something is missing, short
// is set and rest is empty.
type reader struct {
	rest    []byte
	short   bool
	unknown tpm2.TPMAlgID // whose digest ended the reading
}

// take returns the next n bytes, which share memory with the log, or zeros if there are fewer
// and n is at most 8.
func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.rest)) {
		r.rest, r.short = nil, true
		return make([]byte, min(n, 8))
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uint16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }

// event reads an event in the format of TPM 2.0, or of TPM 1.2 if sizes is nil.
func (r *reader) event(sizes map[tpm2.TPMAlgID]int) entry {
	e := entry{pcr: int(r.uint32()), typ: Type(r.uint32()), sizes: sizes}
	if sizes == nil {
		e.sums = r.take(20)
	} else {
		n := r.uint32()
		for e.sums = r.rest; n > 0 && !r.short; n-- {
			alg := tpm2.TPMAlgID(r.uint16())
			size, named := sizes[alg]
			if !named {
				r.unknown, r.short = alg, true
				break
			}
			r.take(uint32(size))
		}
		e.sums = e.sums[:len(e.sums)-len(r.rest)]
	}
	e.data = r.take(r.uint32())
	return e
}

// cleared reports whether the rest is at least n bytes 0x00 or 0xff.
func (r *reader) cleared(n int) bool {
	return len(r.rest) >= n && (r.rest[0] == 0 || r.rest[0] == 0xff) && !slices.ContainsFunc(r.rest, func(b byte) bool { return b != r.rest[0] })
}
