package bootstraptoken

import (
	"errors"
	"testing"
)

func TestList(t *testing.T) {
	foreign, broken, expired := goodObject(t), goodObject(t), goodObject(t)
	foreign.Type = "Opaque"
	broken.Data.Reveal()[keyGroups] = []byte("system:masters")
	expired.Data.Reveal()[keyExpiration] = []byte("2001-01-01T00:00:00Z")
	elsewhere := goodObject(t)
	elsewhere.Namespace = "default"
	secrets, refused := List([]*Object{expired, nil, foreign, broken, elsewhere, goodObject(t)})
	if len(secrets) != 2 || secrets[0].Expiration.Year() != 2001 || secrets[1].Expiration.Year() != 2026 {
		t.Errorf("%v", secrets)
	}
	if len(refused) != 1 || refused[0].Name != broken.Name || !errors.Is(refused[0].Err, CheckGroups) {
		t.Errorf("%v", refused)
	}
	if secrets, refused := List(nil); secrets != nil || refused != nil {
		t.Errorf("%v, %v", secrets, refused)
	}
}
