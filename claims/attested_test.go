package claims

import (
	"fmt"
	"testing"
)

func TestFactsString(t *testing.T) {
	for _, tt := range []struct {
		facts Facts
		want  string
	}{
		{0, "none"},
		{FactNodeName, "node-name"},
		{FactNodeName | FactRegisteredMachine, "node-name,registered-machine"},
		{endOfFacts - 1, "node-name,node-uid,attested-uid,certificate-provider-id,registered-provider-id,registered-machine,registered-machine-uid"},
		{endOfFacts | FactNodeUID, "node-uid,unknown"},
	} {
		t.Run(fmt.Sprint(tt.facts), func(t *testing.T) {
			if got := tt.facts.String(); got != tt.want {
				t.Errorf("%b: got %q, want %q", uint(tt.facts), got, tt.want)
			}
		})
	}
	if 1<<len(factNames) != int(endOfFacts) {
		t.Errorf("%d names for %b facts", len(factNames), uint(endOfFacts-1))
	}
}

func TestFactsHas(t *testing.T) {
	f := FactNodeName | FactNodeUID
	if !f.Has(FactNodeUID) || !f.Has(f) || !f.Has(0) || f.Has(FactAttestedUID) || f.Has(FactNodeUID|FactAttestedUID) {
		t.Error("Has does not ask for all of them")
	}
}
