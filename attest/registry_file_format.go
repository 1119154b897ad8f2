package attest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/nodeattest/nodeattest/refusal"
	"strconv"
	"time"
)

// MaxRegistryFileSize bounds the file of a [FileRegistry], in bytes: room for more
// than 100,000 nodes. A write that would pass it fails.
const MaxRegistryFileSize = 64 << 20

// ErrRegistryFile says that the file of a registry is not one to trust or to write
// to: it is missing, damaged, of another form or scope, or others may write to it.
var ErrRegistryFile = errors.New("registry file refused")

func badRegistryFile(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRegistryFile, fmt.Sprintf(format, args...))
}

const registryFormat = "nodeattest registry 1"

// The file is lines of JSON: a head, one line a record in the order of node names,
// and the SHA-256 of everything in front of the last line. There is one form for
// one content.
type registryHead struct {
	Format  string `json:"format"`
	Scope   string `json:"scope"`
	Last    uint64 `json:"last"`
	Records int    `json:"records"`
}

type registryLine struct {
	Node       string      `json:"node"`
	State      RecordState `json:"state"`
	Machine    Identity    `json:"machine"`
	MachineUID string      `json:"machineUID,omitempty"`
	ProviderID string      `json:"providerID,omitempty"`
	Deadline   int64       `json:"deadline,omitempty"`
	LastEnd    int64       `json:"lastEnd,omitempty"`
	Version    uint64      `json:"version"`
}

type registryFoot struct {
	SHA256 string `json:"sha256"`
}

// encode returns the content of the file.
func (t *registryTable) encode(scope RegistryScope) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b) // ends each line
	e.SetEscapeHTML(false)
	err := e.Encode(registryHead{registryFormat, scope.String(), t.last, len(t.names)})
	for _, r := range t.sorted() {
		if err != nil {
			break
		}
		line := registryLine{Node: r.NodeName, State: r.State, Machine: r.Machine, MachineUID: r.MachineUID, ProviderID: r.ProviderID,
			Deadline: unixOrZero(r.Deadline), LastEnd: unixOrZero(r.LastEnd)}
		if line.Version, err = strconv.ParseUint(r.Version, 10, 64); err == nil {
			err = e.Encode(line)
		}
	}
	if err == nil {
		sum := sha256.Sum256(b.Bytes())
		err = e.Encode(registryFoot{hex.EncodeToString(sum[:])})
	}
	if err != nil {
		return nil, fmt.Errorf("attest: registry: %w", err)
	}
	if b.Len() > MaxRegistryFileSize {
		return nil, badRegistryFile("got %d bytes to write, want at most %d", b.Len(), MaxRegistryFileSize)
	}
	return b.Bytes(), nil
}

func unixOrZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func timeOrZero(unix int64) time.Time {
	if unix == 0 {
		return time.Time{}
	}
	return time.Unix(unix, 0).UTC()
}

// decodeRegistry reads the content of a file and checks all of it.
func decodeRegistry(content []byte, scope RegistryScope) (*registryTable, error) {
	if len(content) > MaxRegistryFileSize {
		return nil, badRegistryFile("got over %d bytes", MaxRegistryFileSize)
	}
	body, err := checkRegistrySum(content)
	if err != nil {
		return nil, err
	}
	first, rest, _ := bytes.Cut(body, []byte("\n"))
	var head registryHead
	if err := decodeLine(first, &head); err != nil {
		return nil, badRegistryFile("line 1: %v", err)
	}
	if head.Format != registryFormat {
		return nil, badRegistryFile("got format %q, want %q", refusal.Text(head.Format), registryFormat)
	}
	if head.Scope != scope.String() {
		return nil, badRegistryFile("got scope %q, want %q", refusal.Text(head.Scope), scope)
	}
	t := newRegistryTable()
	t.last = head.Last
	if err := t.decodeRecords(rest, head.Records); err != nil {
		return nil, err
	}
	// The text could still spell something in another way.
	again, err := t.encode(scope)
	if err != nil || !bytes.Equal(again, content) {
		return nil, badRegistryFile("not in its canonical form")
	}
	return t, nil
}

// checkRegistrySum checks the last line and returns what is in front of it.
func checkRegistrySum(content []byte) ([]byte, error) {
	whole, ok := bytes.CutSuffix(content, []byte("\n"))
	at := bytes.LastIndexByte(whole, '\n') + 1
	if !ok || at == 0 {
		return nil, badRegistryFile("it is cut off")
	}
	var foot registryFoot
	if err := decodeLine(whole[at:], &foot); err != nil {
		return nil, badRegistryFile("it is cut off or damaged at its end")
	}
	sum := sha256.Sum256(content[:at])
	if want := hex.EncodeToString(sum[:]); foot.SHA256 != want {
		return nil, badRegistryFile("it is damaged: got sha256 %q, want %s", refusal.Text(foot.SHA256), want)
	}
	return content[:at], nil
}

func decodeLine(line []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

func (t *registryTable) decodeRecords(lines []byte, count int) error {
	previous := ""
	versions := map[uint64]bool{}
	for n := 2; len(lines) > 0; n++ {
		first, rest, _ := bytes.Cut(lines, []byte("\n"))
		lines = rest
		var line registryLine
		if err := decodeLine(first, &line); err != nil {
			return badRegistryFile("line %d: %v", n, err)
		}
		r := line.record()
		if err := checkStoredRecord(r); err != nil {
			return badRegistryFile("line %d: %v", n, err)
		}
		_, taken := t.machines[r.Machine]
		switch {
		case r.NodeName <= previous:
			return badRegistryFile("line %d: node %q is not behind the one before", n, r.NodeName)
		case r.State != RecordResting && taken:
			return badRegistryFile("line %d: machine %q has two records", n, refusal.Text(string(r.Machine)))
		case line.Version == 0 || line.Version > t.last || versions[line.Version]:
			return badRegistryFile("line %d: version %d is over the last one or not the only one", n, line.Version)
		}
		previous, versions[line.Version] = r.NodeName, true
		t.add(r)
	}
	if len(t.names) != count {
		return badRegistryFile("got %d records, want %d", len(t.names), count)
	}
	return nil
}

func (l *registryLine) record() *RegistryRecord {
	return &RegistryRecord{
		RegistryClaim: RegistryClaim{NodeName: l.Node, Machine: l.Machine, MachineUID: l.MachineUID, ProviderID: l.ProviderID},
		State:         l.State,
		Deadline:      timeOrZero(l.Deadline),
		LastEnd:       timeOrZero(l.LastEnd),
		Version:       strconv.FormatUint(l.Version, 10),
	}
}

// checkStoredRecord checks that a record is one that the rules can make.
func checkStoredRecord(r *RegistryRecord) error {
	if err := r.check(); err != nil {
		return err
	}
	for _, at := range []time.Time{r.Deadline, r.LastEnd} {
		if s := unixOrZero(at); s < 0 || s > maxUnix {
			return fmt.Errorf("time %d is outside the years 1970 to 9999", s)
		}
	}
	ok := false
	switch r.State {
	case RecordReserved:
		ok = !r.Deadline.IsZero() && r.LastEnd.IsZero()
	case RecordBound:
		ok = r.Deadline.IsZero()
	case RecordResting:
		ok = r.Deadline.IsZero() && !r.LastEnd.IsZero()
	}
	if !ok {
		return fmt.Errorf("state %q does not go with deadline %d and lastEnd %d", refusal.Text(string(r.State)), unixOrZero(r.Deadline), unixOrZero(r.LastEnd))
	}
	return nil
}
