package membership

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"
)

// The file of a registry is a head and lines that end with a newline. A line is a checksum, a space and
// JSON; the checksum is that of the JSON after the JSON of all lines before it:
//
//	head    the length that is on disk, 16 hexadecimal digits, and its checksum
//	line 1  a journalHeader
//	line n  the changes of one call
//
// A call appends a line, syncs the file, and only then writes the new length into the head. So everything
// that the head covers must be whole. Of what comes after, whole lines count, also those of calls that did
// not return or returned an error. The first line that is not whole ends the file.

const (
	journalFormat = "nodeattest registry 3"
	headSize      = 16 + 1 + 8 + 1
	checksumSize  = 8 + 1 + 1 // with the space and the newline
	maxLineSize   = 128 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journalHeader is the first line of a file.
type journalHeader struct {
	Format, Cluster, Scope string
	Version                uint64 // the greatest version given
}

// journal is the file of a registry and the place of the next line.
type journal struct {
	file  *os.File
	size  int64
	sum   uint32 // of the lines so far
	lines int
	most  int // number of lines from which the file is written anew
}

// line returns the next line.
func (j *journal) line(text []byte) []byte {
	j.sum = crc32.Update(j.sum, castagnoli, text)
	line := fmt.Appendf(nil, "%08x %s\n", j.sum, text)
	j.size += int64(len(line))
	j.lines++
	return line
}

func head(size int64) []byte {
	text := fmt.Appendf(nil, "%016x", size)
	return fmt.Appendf(text, " %08x\n", crc32.Checksum(text, castagnoli))
}

// append saves changes.
func (j *journal) append(changes []change) error {
	text, err := encodeChanges(changes)
	if err != nil {
		return err
	}
	next := *j
	if _, err := j.file.WriteAt(next.line(text), j.size); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	if _, err := j.file.WriteAt(head(next.size), 0); err != nil {
		return err
	}
	*j = next
	return nil
}

// writeJournal writes a whole file.
func writeJournal(f *os.File, scope Scope, all *records) error {
	j := journal{size: headSize}
	w := bufio.NewWriter(io.NewOffsetWriter(f, headSize))
	add := func(line any) error {
		text, err := json.Marshal(line)
		_, _ = w.Write(j.line(text)) // Flush returns its error
		return err
	}
	err := add(journalHeader{journalFormat, scope.Cluster, scope.String(), all.last})
	for _, r := range all.byName {
		err = cmp.Or(err, add([]change{{Put: r}}))
	}
	if err = cmp.Or(err, w.Flush()); err != nil {
		return err
	}
	_, err = f.WriteAt(head(j.size), 0)
	return err
}

func damaged(format string, values ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{checkRegistryFile}, values...)...)
}

// readJournal reads a file of this length, and cuts off a last line that is not whole.
func readJournal(f *os.File, length int64, scope Scope) (journal, *records, error) {
	j := journal{file: f, size: headSize}
	covered, err := readHead(f)
	if err != nil {
		return j, nil, err
	}
	lines := bufio.NewReaderSize(io.NewSectionReader(f, headSize, max(0, length-headSize)), maxLineSize)
	text, err := j.read(lines)
	if err != nil {
		return j, nil, err
	}
	last, err := checkHeader(text, scope)
	if err != nil {
		return j, nil, err
	}
	held := map[string]*Record{}
	for text, err = j.read(lines); text != nil && err == nil; text, err = j.read(lines) {
		changes, err := decodeChanges(text)
		if err != nil {
			return j, nil, damaged("line %d: %w", j.lines, err)
		}
		for _, c := range changes {
			if c.Put == nil {
				delete(held, c.Drop)
				continue
			}
			held[c.Put.NodeName] = c.Put
			last = max(last, versionOf(c.Put))
		}
	}
	if err != nil {
		return j, nil, err
	}
	if j.size < covered {
		return j, nil, damaged("got %d bytes without damage, want %d", j.size, covered)
	}
	if j.size != covered || j.size != length {
		if err := j.end(covered); err != nil {
			return j, nil, err
		}
	}
	j.most = 2*len(held) + 1000
	all, err := index(held, last)
	return j, all, err
}

// read returns the JSON of the next line; nil without an error at the end of the whole lines.
func (j *journal) read(lines *bufio.Reader) ([]byte, error) {
	line, err := lines.ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	_, text, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	next := *j
	if !bytes.Equal(next.line(text), line) {
		return nil, nil
	}
	*j = next
	return text, nil
}

// end cuts the file off behind the last line, and has the head cover it. Lines that the head did not cover
// are written again: the sync of their call may have failed, and then they are only in memory.
func (j *journal) end(covered int64) error {
	again := io.NewSectionReader(j.file, covered, j.size-covered)
	if _, err := io.Copy(io.NewOffsetWriter(j.file, covered), again); err != nil {
		return err
	}
	if err := cmp.Or(j.file.Truncate(j.size), j.file.Sync()); err != nil {
		return err
	}
	_, err := j.file.WriteAt(head(j.size), 0)
	return err
}

// readHead returns the length that the head covers.
func readHead(f *os.File) (int64, error) {
	got := make([]byte, headSize)
	n, err := f.ReadAt(got, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	size, err := strconv.ParseInt(string(got[:min(n, 16)]), 16, 64)
	if err != nil || size < headSize || !bytes.Equal(got, head(size)) {
		return 0, damaged("its first line: it is no registry, or a damaged one")
	}
	return size, nil
}

// checkHeader checks the first line after the head, and returns the greatest version that was given.
func checkHeader(text []byte, scope Scope) (uint64, error) {
	var got journalHeader
	err := json.Unmarshal(text, &got)
	if again, _ := json.Marshal(got); err != nil || got.Format != journalFormat || !bytes.Equal(again, text) {
		return 0, damaged("it is no registry, or one of another version")
	}
	if got.Scope != scope.String() {
		return 0, damaged("got a registry of scope %q, want %q", got.Scope, scope.String())
	}
	if got.Cluster != scope.Cluster {
		return 0, damaged("got a registry of cluster %q, want %q", got.Cluster, scope.Cluster)
	}
	return got.Version, nil
}

// index returns the records of a file. No two of them have one machine or one Machine UID.
func index(held map[string]*Record, last uint64) (*records, error) {
	all := newRecords()
	for _, name := range slices.Sorted(maps.Keys(held)) {
		r := held[name]
		if r.HoldsMachine() && all.machines[r.Machine] != nil || all.uids[r.MachineUID] != nil {
			return nil, damaged("two records of one machine or Machine UID")
		}
		all.insert(len(all.byName), r)
	}
	all.last = last
	return all, nil
}

// encodeChanges returns the JSON of the changes of a call.
func encodeChanges(changes []change) ([]byte, error) {
	text, err := json.Marshal(changes)
	if err == nil {
		_, err = decodeChanges(text) // never store what could not be read back
	}
	return text, err
}

// decodeChanges reads the changes of a call. They have exactly one encoding: the JSON by encoding/json.
func decodeChanges(text []byte) ([]change, error) {
	if len(text) > maxLineSize-checksumSize {
		return nil, fmt.Errorf("got %d bytes, want at most %d", len(text), maxLineSize-checksumSize)
	}
	var changes []change
	if err := json.Unmarshal(text, &changes); err != nil {
		return nil, err
	}
	if again, err := json.Marshal(changes); err != nil || !bytes.Equal(again, text) || len(changes) == 0 {
		return nil, errors.New("got another encoding, or no change")
	}
	for _, c := range changes {
		if (c.Put == nil) == (c.Drop == "") {
			return nil, errors.New("got a change that neither stores nor removes a record, or both")
		}
		if c.Put == nil {
			continue
		}
		if err := checkStored(c.Put); err != nil {
			return nil, err
		}
	}
	return changes, nil
}

// versionOf returns the version of a stored record, 0 if it has none.
func versionOf(r *Record) uint64 {
	version, _ := strconv.ParseUint(r.Version, 10, 64)
	return version
}

// storable reports whether a stored record can have a time: zero, or a whole second since 1970, in UTC.
// JSON has no time after the year 9999.
func storable(t time.Time) bool {
	return t.Location() == time.UTC && (t.IsZero() || t.Nanosecond() == 0 && t.Unix() >= 0)
}

// checkStored checks a stored record.
func checkStored(r *Record) error {
	reserved, bound, resting := r.State == StateReserved, r.State == StateBound, r.State == StateResting
	version := versionOf(r)
	switch {
	case version == 0 || strconv.FormatUint(version, 10) != r.Version:
		return errors.New("got no version")
	case !reserved && !bound && !resting:
		return errors.New("got no state")
	case !storable(r.Deadline) || !storable(r.LastEnd):
		return errors.New("got a time that is no whole second of the years 1970 to 9999")
	case reserved == r.Deadline.IsZero() || reserved && !r.LastEnd.IsZero() || resting && r.LastEnd.IsZero() || !bound && len(r.Issued) > 0:
		return fmt.Errorf("got times or certificates that a %s record does not have", r.State)
	}
	return r.Claim.Check()
}
