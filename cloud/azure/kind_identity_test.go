package azure

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
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

// What people write for a machine, which no document names, is refused at the start. Capital letters
// are not, as Azure's interface spells UUIDs in either case.
func TestListedMachines(t *testing.T) {
	kind := testkit.Must(NewKind(KindConfig{Verifier: cloudVerifier(t, cloudtest.NewAzure(t, cloudtest.AzureOptions{})), Subscriptions: []string{testSubscription}}))
	id := "azure:" + testSubscription + "/" + testVM
	kindtest.Lines(t, kind, map[string]string{
		id + " node-1 provider=azure":                "",
		id + " node-1":                               "provider=azure",
		"azure:" + testVM + " node-1 provider=azure": "two UUIDs",
		"azure:" + testSubscription + "/aks-pool-1_0 node-1 provider=azure":     "two UUIDs",
		"azure:/subscriptions/" + testSubscription + " node-1 provider=azure":   "two UUIDs",
		"azure:" + testSubscription + "/" + testVM + "/0 node-1 provider=azure": "two UUIDs",
	})
}
