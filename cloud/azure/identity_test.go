package azure

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
)

// A list may have the UUIDs in capitals, as Azure shows them; a verification finds one spelling.
func TestIdentitiesOfLists(t *testing.T) {
	const uuid = "8a205152-b25a-417f-a676-80465535a6c9"
	for _, s := range []string{uuid + "/" + uuid, strings.ToUpper(uuid) + "/" + uuid, uuid + "/" + strings.ToUpper(uuid)} {
		if id, err := parseIdentity(attest.Identity("azure:" + s)); err != nil || id != "azure:"+uuid+"/"+uuid {
			t.Errorf("%q: got %q, %v", s, id, err)
		}
	}
	for _, s := range []string{"", uuid, uuid + "/", "/" + uuid, uuid + "/" + uuid + "/" + uuid, uuid + "/" + uuid[1:], uuid + "/" + uuid + "0",
		uuid + "/" + strings.Replace(uuid, "8a", "8g", 1), uuid + "/" + strings.ReplaceAll(uuid, "-", "0"), uuid + "/8a205152b-25a-417f-a676-80465535a6c9",
		uuid + "/" + strings.Replace(uuid, "b", "-", 1), uuid + "/" + strings.Replace(uuid, "a6c9", "--c9", 1)} {
		if id, err := parseIdentity(attest.Identity("azure:" + s)); !errors.Is(err, attest.CheckIdentity) || id != "" {
			t.Errorf("%q: got %q, %v", s, id, err)
		}
	}
}
