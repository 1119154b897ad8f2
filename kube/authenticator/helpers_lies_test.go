package authenticator

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// maxHeld is how much of the heap a node may hold in any turn, in bytes.
	maxHeld = 32 << 20
	// nodeTurns is how many turns there are with one node.
	nodeTurns = 20
)

// liar is the other side of a node's connections.
type liar interface {
	// lie has it lie from now on. If it falls silent it calls end.
	lie(end context.CancelFunc)
	// stop has it tell the truth, and ends its silence.
	stop()
	// tidy puts in order what its lies have left behind, after the attempt.
	tidy()
}

// lies are turns with a liar: LIES says how many, and SEED which.
type lies struct {
	*rand.Rand
	t       *testing.T
	f       *fakeAPI
	turns   int
	limit   time.Duration // when the context of a turn ends: after some lies a node waits
	seed    uint64
	secrets [][]byte // which must not be shown
	log     record
	ends    map[string]int
	heap    heap

	mu   sync.Mutex
	told map[string]int
}

func newLies(t *testing.T, turns int) *lies {
	t.Helper()
	number := func(name string, otherwise int) int {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n := testkit.Must(strconv.Atoi(text))
		return n
	}
	l := &lies{t: t, f: newFakeAPI(t), turns: number("LIES", turns), seed: uint64(number("SEED", 1)), secrets: [][]byte{[]byte(testToken)}, told: map[string]int{}, ends: map[string]int{}}
	if l.limit = 500 * time.Millisecond; os.Getenv("LIES") != "" {
		l.limit = 2 * time.Second
	}
	l.Rand = rand.New(&source{PCG: rand.NewPCG(l.seed, 0)})
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1") // client-go forgets a connection that has ended when it would ping it
	return l
}

// source is one for several goroutines.
type source struct {
	mu sync.Mutex
	*rand.PCG
}

func (s *source) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.PCG.Uint64()
}

// record is a log for several goroutines.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

// take returns the lines that were logged since the last time.
func (r *record) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.b.Reset()
	return r.b.String()
}

func oneOf[T any](l *lies, all []T) T { return all[l.IntN(len(all))] }

// count counts a lie.
func (l *lies) count(lie string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[lie]++
}

// which says at random which of the calls of a turn are lied about: one, two, or all from one on.
func (l *lies) which(calls int) func(n int) bool {
	first, second, all := 1+l.IntN(calls), 1+l.IntN(calls), l.IntN(12) == 0
	return func(n int) bool { return n == first || n == second || all && n > first }
}

// run has nodes, which made makes with what lies to them, take the turns.
func (l *lies) run(made func() (*Authenticator, liar)) {
	l.t.Helper()
	var a *Authenticator
	var who liar
	for n := range l.turns {
		if n%nodeTurns == 0 {
			l.f.set(func() {
				clear(l.f.objects)
				l.f.log = nil
			})
			a, who = l.node(made)
			l.truth(a)
		}
		if n == 0 {
			l.heap.measure(l.t)
		}
		if l.IntN(3) == 0 { // with one that has no certificate
			l.turn(l.node(made))
		} else {
			l.turn(a, who)
		}
		if n%nodeTurns == nodeTurns-1 || n == l.turns-1 {
			l.truth(a)
			l.mu.Lock()
			l.t.Logf("seed %d, %d turns: %s; %d goroutines; how they ended: %v; lies: %v", l.seed, n+1, &l.heap, runtime.NumGoroutine(), l.ends, l.told)
			l.mu.Unlock()
		}
		if l.t.Failed() {
			l.t.Fatalf("in turn %d of seed %d", n, l.seed)
		}
	}
}

// node makes one.
func (l *lies) node(made func() (*Authenticator, liar)) (*Authenticator, liar) {
	l.t.Helper()
	a, who := made()
	c := a.config
	c.Log = slog.New(slog.NewTextHandler(&l.log, nil))
	a = testkit.Must(New(c))
	return a, who
}

// TestHolders holds that holders counts data that a node reads as the node's, and data of a server as
// the server's. What other tests have left is freed between two samples, so a growth may be off by half.
func TestHolders(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := newNode(t, f, nil)
	const size, half = 32 << 20, 16 << 20
	testkit.MustDo(os.WriteFile(a.store.Path("large"), make([]byte, size), 0o600))
	new(heap).measure(t)
	grown := func(allocate func()) (node, others int64) {
		nodeBefore, othersBefore := holders()
		allocate()
		nodeAfter, othersAfter := holders()
		return int64(nodeAfter) - int64(nodeBefore), int64(othersAfter) - int64(othersBefore)
	}
	var text, kept []byte
	node, others := grown(func() {
		text = testkit.Must(a.store.Read("large", size))
	})
	if node < half || others > half {
		t.Errorf("a node read %d bytes: the node holds %d more, the server %d", size, node, others)
	}
	node, others = grown(func() { kept = f.remember(size) })
	if node > half || others < half {
		t.Errorf("a server keeps %d bytes: the node holds %d more, the server %d", size, node, others)
	}
	runtime.KeepAlive(text)
	runtime.KeepAlive(kept)
}

// truth is a turn without a lie: everything is renewed.
func (l *lies) truth(a *Authenticator) {
	l.t.Helper()
	before := a.stored(ClientFile)
	if err := a.Rotate(l.t.Context()); err != nil {
		l.t.Fatalf("without a lie: %v", err)
	}
	if before != nil && bytes.Equal(before.Key, a.stored(ClientFile).Key) {
		l.t.Error("without a lie it is not renewed")
	}
	l.log.take()
}

// turn is one.
func (l *lies) turn(a *Authenticator, who liar) {
	l.t.Helper()
	hidden := append([][]byte{}, l.secrets...)
	hide := func() {
		for _, file := range []string{ClientFile, previousFile, ServingFile} {
			if p := a.stored(file); p != nil {
				hidden = append(hidden, privateParts(l.t, p)...)
			}
		}
	}
	hide()
	ctx, cancel := context.WithTimeout(l.t.Context(), l.limit)
	defer cancel()
	i, act := l.action(a)
	before, client := a.stored(i.file), a.stored(ClientFile)
	who.lie(cancel)
	err := act(ctx)
	who.stop()
	lock, lockErr := a.store.Lock(l.t.Context()) // once a renewal that outlasted ctx has ended
	testkit.MustDo(errors.Join(lockErr, lock.Unlock()))
	who.tidy()
	l.works(a, client != nil)
	hide()
	var shown bytes.Buffer
	status := a.Status()
	state, readErr := a.store.Read(stateFile, maxStateSize)
	if err := errors.Join(readErr, status.Write(&shown, time.Now())); err != nil {
		l.t.Error(err)
	}
	for where, out := range map[string]any{"error": err, "log": l.log.take(), "state": string(state), "status": []any{shown.String(), status}} {
		for _, leak := range testkit.SecretLeaks(out, hidden...) {
			l.t.Errorf("the %s %s", where, leak)
		}
	}
	end := endOf(err)
	switch after := a.stored(i.file); {
	case err != nil:
	case after != nil && (before == nil || !bytes.Equal(after.Key, before.Key)):
		end = "renewed"
	default:
		end = "kept"
	}
	l.ends[end]++
	if l.heap.node.Load() > maxHeld {
		l.t.Errorf("%s", &l.heap)
	}
}

// action is something that a node does, and the certificate that it does it for.
func (l *lies) action(a *Authenticator) (*slot, func(ctx context.Context) error) {
	client, other, actions := a.slots[0], oneOf(l, a.slots[1:]), 3
	if a.stored(ClientFile) != nil {
		old(l.t, a)
		actions++
	}
	switch l.IntN(actions) {
	case 0:
		return client, a.Rotate
	case 1:
		return client, func(ctx context.Context) error {
			_, err := a.Credential(ctx)
			return err
		}
	case 2:
		return client, func(ctx context.Context) error {
			var failed []error
			err := a.snapshot(caller{daemon: true}).loop(ctx, func(_ step, err error) bool { // once around
				failed = append(failed, err)
				return len(failed) == len(a.slots)
			})
			return errors.Join(append(failed, err)...)
		}
	}
	return other, func(ctx context.Context) error {
		lock, err := a.store.Lock(ctx)
		if err != nil {
			return err
		}
		_, err = a.renew(ctx, lock, other, caller{daemon: true})
		return err
	}
}

// works has the API server, or a TLS client, try the stored certificates. A node that had a client certificate has
// one.
func (l *lies) works(a *Authenticator, had bool) {
	l.t.Helper()
	for _, i := range a.slots {
		if p := a.stored(i.file); p != nil || had && i.Purpose == csr.PurposeClient {
			if err := tryStored(l.t.Context(), a, i, p); err != nil {
				l.t.Errorf("the %s certificate that is stored: %v", i.Purpose, err)
			}
		}
	}
}

func tryStored(ctx context.Context, a *Authenticator, i *slot, p *certstore.Pair) (err error) {
	bare, _, err := a.connection()
	switch {
	case err != nil:
		return err
	case p == nil:
		return fs.ErrNotExist
	case i.Purpose == csr.PurposeServing:
		return i.Serve(ctx, p)
	}
	evidence, err := a.config.Kind.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, evidence.Close()) }()
	return authenticates(ctx, i, credential{config: bare, pair: p}, evidence)
}

// privateParts returns the secret parts of a key's file, as bytes and as they are stored.
func privateParts(t *testing.T, p *certstore.Pair) [][]byte {
	t.Helper()
	block, _ := pem.Decode(p.Key)
	key := testkit.Must(x509.ParsePKCS8PrivateKey(block.Bytes))
	number := testkit.Must(key.(*ecdsa.PrivateKey).Bytes())
	at := bytes.Index(block.Bytes, number)
	at += (3 - at%3) % 3 // where base64 begins anew
	return [][]byte{number, []byte(base64.StdEncoding.EncodeToString(block.Bytes[at : at+24]))}
}

// endOf says in a word how a turn ended.
func endOf(err error) string {
	var refused *refusal.Error
	var code tpm2.TPMRC
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, context.Canceled):
		return "silence"
	case errors.Is(err, context.DeadlineExceeded):
		return "time"
	case errors.As(err, &refused):
		return string(refused.Check)
	case errors.As(err, &code):
		return "TPM's error"
	case errors.As(err, &status):
		return "HTTP " + strconv.Itoa(int(status.Status().Code))
	}
	return "another error"
}
