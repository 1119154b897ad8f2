package membership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// faultyStore fails in one of its calls.
type faultyStore struct {
	*memoryStore
	fails string
}

var errStore = errors.New("store away")

func (f *faultyStore) fail(call string) error {
	if f.fails == call {
		return errStore
	}
	return nil
}

// faultyTx is what such a store hands out.
type faultyTx struct {
	Tx
	f *faultyStore
}

func (f *faultyStore) View(ctx context.Context, use func(Tx) error) error {
	return f.memoryStore.View(ctx, func(t Tx) error { return use(faultyTx{t, f}) })
}

func (f *faultyStore) Update(ctx context.Context, use func(Tx) error) error {
	return f.memoryStore.Update(ctx, func(t Tx) error { return use(faultyTx{t, f}) })
}

func (t faultyTx) ByName(n string) (*Record, error) {
	if err := t.f.fail("ByName"); err != nil {
		return nil, err
	}
	return t.Tx.ByName(n)
}

func (t faultyTx) ByMachine(m attest.Identity) (*Record, error) {
	if err := t.f.fail("ByMachine"); err != nil {
		return nil, err
	}
	return t.Tx.ByMachine(m)
}

func (t faultyTx) ByMachineUID(uid string) (*Record, error) {
	if err := t.f.fail("ByMachineUID"); err != nil {
		return nil, err
	}
	return t.Tx.ByMachineUID(uid)
}

func (t faultyTx) After(n string, limit int) ([]*Record, error) {
	if err := t.f.fail("After"); err != nil {
		return nil, err
	}
	return t.Tx.After(n, limit)
}

func (t faultyTx) Put(r Record) (*Record, error) {
	if err := t.f.fail("Put"); err != nil {
		return nil, err
	}
	return t.Tx.Put(r)
}

func (t faultyTx) Drop(n string) error {
	if err := t.f.fail("Drop"); err != nil {
		return err
	}
	return t.Tx.Drop(n)
}

func (t faultyTx) Due(now time.Time, limit int) ([]string, error) {
	if err := t.f.fail("Due"); err != nil {
		return nil, err
	}
	return t.Tx.Due(now, limit)
}

// An error of the store is an error of the call, and admits no machine.
func TestFaultyStore(t *testing.T) {
	for _, fails := range []string{"ByName", "ByMachine", "ByMachineUID", "Put", "Drop", "Due"} {
		t.Run(fails, func(t *testing.T) {
			at := testTime()
			store := &faultyStore{memoryStore: newMemoryStore()}
			r := testkit.Must(NewRegistry(testScope, store, RegistryOptions{Now: func() time.Time { return at }}))
			testkit.Must(r.Reserve(t.Context(), testClaim(9), at.Add(time.Second)))
			at = at.Add(time.Minute)
			use := testkit.Must(NewFirstUse(FirstUseConfig{Registry: r, MaxLifetime: time.Hour, NodeExists: func(context.Context, string) (bool, error) { return false, nil },
				Now: func() time.Time { return at }}))
			store.fails = fails
			if got, err := r.Reserve(t.Context(), testClaim(5), at.Add(time.Minute)); got != nil || !errors.Is(err, errStore) {
				t.Errorf("Reserve: got %v, %v", got, err)
			}
			if a, err := asked(t, use, answerOf(t, "node-3", "gce:p/3")); a != nil || !errors.Is(err, errStore) || errors.Is(err, attest.CheckMembership) {
				t.Errorf("first use: got %v, %v", a, err)
			}
			hello := answerOf(t, "node-4", "gce:p/4")
			hello.Stage = attest.StageHello
			if a, err := asked(t, use, hello); strings.HasPrefix(fails, "By") && (a != nil || !errors.Is(err, errStore)) {
				t.Errorf("first use at the hello: got %v, %v", a, err)
			}
		})
	}
	store := &faultyStore{memoryStore: newMemoryStore(), fails: "After"}
	r := testkit.Must(NewRegistry(testScope, store, RegistryOptions{}))
	for record, err := range r.Records(t.Context()) {
		if record != nil || !errors.Is(err, errStore) {
			t.Errorf("Records: got %v, %v", record, err)
		}
	}
	store.fails = "ByMachineUID"
	if got, err := r.LookupMachineUID(t.Context(), "uid"); got != nil || !errors.Is(err, errStore) {
		t.Errorf("LookupMachineUID: got %v, %v", got, err)
	}
	if got, err := r.LookupMachineUID(t.Context(), ""); got != nil || err != nil {
		t.Errorf("LookupMachineUID of nothing: got %v, %v", got, err)
	}
}
