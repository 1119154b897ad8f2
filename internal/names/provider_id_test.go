package names

import "testing"

func TestKnownProviderID(t *testing.T) {
	for id, want := range map[string]string{NoProviderID: "", "": "", "none://1": "none://1", "NoProviderID": "NoProviderID"} {
		if got := KnownProviderID(id); got != want {
			t.Errorf("%q: got %q", id, got)
		}
	}
}
