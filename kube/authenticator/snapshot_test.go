package authenticator

import (
	"os"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestView: a snapshot stays the same until it is refreshed.
func TestView(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := joined(t, f, nil)
	v := a.snapshot(caller{})
	before, failed := v.next(a.slots[0]).use, v.state[ClientFile].Failures
	testkit.MustDo(os.Remove(a.store.Path(ClientFile)))
	testkit.MustDo(a.begin(nil, a.slots[0]))
	if p := v.next(a.slots[0]).use; before == nil || p != before || v.current(a.slots[0]) != before || v.state[ClientFile].Failures != failed {
		t.Errorf("it was read again: got %v, %+v", p, v.state)
	}
	if p := v.refresh().next(a.slots[0]).use; p != nil || v.state[ClientFile].Failures != failed+1 {
		t.Errorf("it was not read again: got %v, %+v", p, v.state)
	}
}
