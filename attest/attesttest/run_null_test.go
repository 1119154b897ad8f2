package attesttest

import (
	"context"
	"slices"
	"testing"
)

// TestInsecureNull: every attack that only evidence could stop gets past the null attestor, and no other
// does. If it stops an attack of these classes, the attack is worth nothing.
func TestInsecureNull(t *testing.T) {
	w := NewWorld(t, WorldOptions{Documents: toyDocuments(t, strictKind)})
	policy := []string{"node-unknown", "node-not-ready", "unknown-node-by-stranger", "inventory-of-another-machine", "inventory-of-another-provider"}
	policy = append(policy, "budget-spent") // it has no budget
	withEvidence := []string{"provider-version-unknown", "provider-version-annotated", "evidence-of-one-byte"}
	honest := 0
	for _, o := range Try(context.Background(), insecureNull(w.Config.Policy), w) {
		want := false
		switch o.Class {
		case classBinding, classStatement:
			want = !slices.Contains(policy, o.Name)
		case classRequest:
			want = slices.Contains(withEvidence, o.Name)
		case classHonest:
			honest++
			continue // it does not challenge, so no honest machine answers it
		}
		if (o.Fault != "") != want {
			t.Errorf("%s: fault %q (%v), want one: %t", o.Name, o.Fault, o.Err, want)
		}
	}
	if honest == 0 {
		t.Error("no honest request")
	}
}

func TestAttackNames(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range attacksIn(NewWorld(t, WorldOptions{Documents: toyDocuments(t, strictKind)})) {
		if seen[a.Name] || a.Name == "" || a.Description == "" || a.Class == "" {
			t.Errorf("%+v", a)
		}
		seen[a.Name] = true
	}
	if len(seen) < 70 {
		t.Errorf("%d attacks", len(seen))
	}
}
