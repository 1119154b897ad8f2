package attesttest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestWorldMember(t *testing.T) {
	w := NewWorld(t, WorldOptions{Documents: toyDocuments(t, strictKind)})
	for row, c := range []struct {
		node, machine string
		want          error
	}{
		{NodeName, MachineOne, nil},
		{NodeName2, MachineTwo, nil},
		{NodeName, MachineTwo, csr.ErrNoMachine},
		{NodeName2, MachineOne, csr.ErrNoMachine},
		{NodeName, Stranger, csr.ErrNoMachine},
		{"node-9", Stranger, csr.ErrNoMachine},
		{"", "", csr.ErrNoMachine},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			if err := w.Member(c.node, c.machine); !errors.Is(err, c.want) {
				t.Errorf("%s as %s: %v, want %v", c.machine, c.node, err, c.want)
			}
		})
	}
	w.setDown(true)
	if err := w.Member(NodeName, MachineOne); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("down: %v", err)
	}
}

func TestWorldOptions(t *testing.T) {
	prove := func(context.Context, csr.Provider, *Applicant) (*csr.Bundle, error) {
		return nil, errors.New("no platform")
	}
	w := NewWorld(t, WorldOptions{Provider: "cloud", Prove: prove})
	if got := w.Config.Policy.SignerNames; got[0] != "cluster.x-k8s.io/kube-apiserver-client-kubelet-cloud" || got[1] != "cluster.x-k8s.io/kubelet-serving-cloud" {
		t.Errorf("signers %q", got)
	}
	for _, name := range []string{"insecure", "Cloud", "a.b", ""} {
		if _, err := OpenWorld(WorldOptions{Provider: name, Prove: prove}); !errors.Is(err, csr.CheckSignerName) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, o := range map[string]WorldOptions{
		"no evidence":           {Provider: "cloud"},
		"an attack of no maker": {Provider: "cloud", Prove: prove, Attacks: []Attack{{Name: "own", Class: classBinding}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := OpenWorld(o); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, want %v", err, refusal.CheckConfig)
			}
		})
	}
}

// TestAttacksAreOneThing: an unchanged forgery is admitted, so an attack is refused for its one change.
func TestAttacksAreOneThing(t *testing.T) {
	n, w := newNaive(t)
	for _, i := range []requestOptions{{}, {serving: true}, {machine: MachineTwo, node: NodeName2}} {
		request, err := i.make(context.Background(), &attempt{World: w, provider: n})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.issue(context.Background(), n, request); err != nil {
			t.Errorf("%+v: %v", i, err)
		}
	}
}

// TestRunLeavesTheWorld: the runner moves the clock by a day, and leaves the
// inventory up, so that a world can be looked at afterwards.
func TestRunLeavesTheWorld(t *testing.T) {
	n, w := newNaive(t)
	before := w.Now()
	for range 2 {
		if got := GotIn(Try(context.Background(), n, w)); len(got) > 0 {
			t.Errorf("got in: %q", got)
		}
	}
	if passed := w.Now().Sub(before); passed != 48*time.Hour {
		t.Errorf("%s passed", passed)
	}
	if err := w.Member(NodeName, MachineOne); err != nil {
		t.Error(err)
	}
}

// TestBrokenProve: a Prove that fails is the author's fault, not the provider's.
func TestBrokenProve(t *testing.T) {
	w := NewWorld(t, WorldOptions{Provider: "cloud", Prove: func(context.Context, csr.Provider, *Applicant) (*csr.Bundle, error) {
		return nil, errors.New("no platform")
	}})
	for _, o := range Try(context.Background(), insecureNull(w.Config.Policy), w) {
		if o.Issued {
			t.Errorf("%s: a certificate without a request", o.Name)
		}
		if o.Class == classHonest && o.Fault == "" {
			t.Errorf("%s: no fault", o.Name)
		}
	}
}

func TestProviderWithoutChallenge(t *testing.T) {
	w := NewWorld(t, WorldOptions{Documents: toyDocuments(t, strictKind)})
	provider := insecureNull(w.Config.Policy)
	for _, o := range Try(context.Background(), provider, w) {
		if o.Class == classHonest && o.Err == nil {
			t.Errorf("%s: a provider that does not challenge got evidence", o.Name)
		}
	}
	if _, err := provider.MachineName(context.Background(), nil); !errors.Is(err, csr.CheckProviderResult) {
		t.Errorf("a name without a result: %v", err)
	}
}
