package clusterapi

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// operatorReleases does what kubectl nodeattest release --gone does, for every record that is marked.
func (s *swept) operatorReleases(t *testing.T) {
	t.Helper()
	var list v1alpha1.AttestedNodeList
	testkit.NoError(t, s.nodes.Client.List(t.Context(), &list))
	for i := range list.Items {
		if n := &list.Items[i]; n.Annotations[AnnotationGone] != "" && n.Annotations[AnnotationMachineUID] == n.Spec.MachineUID {
			testkit.Must(s.registry().Release(t.Context(), n.Name, n.Spec.MachineUID))
		}
	}
}

// TestSweep has an hour pass for 500 records and two sweepers, in steps of a minute: Machines are deleted,
// the Cluster is paused, reads and writes fail, processes end, and once all Machines seem to be gone. An
// operator looks each ten minutes.
func TestSweep(t *testing.T) {
	const records = 500
	random := rand.New(rand.NewPCG(4, 5))
	s := newSwept(t, records)
	sweepers := []*sweep{s.sweeper(t), s.sweeper(t)}
	testkit.NoError(t, sweepers[0].run(t.Context()))
	left := random.Perm(records)
	var reads, released int
	for minute := range 60 {
		calm := minute >= 50
		for range random.IntN(12) {
			if len(left) > records/3 && !calm {
				s.remove(t, fmt.Sprint("machine-", left[0]))
				left = left[1:]
			}
		}
		s.pause(t, !calm && random.IntN(6) == 0)
		wild, empty := !calm && random.IntN(3) == 0, minute == 20
		s.fails = func(string) error {
			if reads++; wild && reads%3 == 0 {
				return errors.New("the management cluster is away")
			}
			return nil
		}
		s.empty = empty
		writes := 0
		s.nodes.Fault(func(int) (before, after error) {
			switch writes++; {
			case !calm && writes%7 == 3:
				return errors.New("the workload cluster is away"), nil
			case !calm && writes%7 == 5:
				return nil, errors.New("the answer is lost")
			}
			return nil, nil
		})
		if !calm && random.IntN(10) == 0 {
			sweepers[random.IntN(2)] = s.sweeper(t)
		}
		var both sync.WaitGroup
		for _, one := range sweepers {
			both.Go(func() { one.look(t.Context()) })
		}
		both.Wait()
		s.empty = false
		s.nodes.Fault(nil)
		if minute%10 == 9 && !empty {
			s.operatorReleases(t)
		}
		s.pass(time.Minute)
	}
	bound, held := s.states(t)
	released = records - len(bound)
	t.Logf("%d of %d Machines deleted, %d records released", records-len(left), records, released)
	if len(s.wrong) != 0 {
		t.Errorf("released although their Machines are there: %q", s.wrong)
	}
	if len(bound) != len(left) || len(held) != 0 || released < records/4 {
		t.Errorf("%d records are bound, %d held; %d Machines are there", len(bound), len(held), len(left))
	}
}
