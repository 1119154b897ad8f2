package attest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// fullResult is a Result in which every field that is kept has a value.
func fullResult() *attest.Result {
	zone := time.FixedZone("", 3600)
	private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), append(make([]byte, 31), 1))
	if err != nil {
		panic(err)
	}
	key := &private.PublicKey
	return &attest.Result{
		Stage: attest.StageAnswer, Provider: "tpm", Road: attest.RoadEK,
		Machine: "ek:sha256:00ff", MachineStanding: attest.Proven, MachineKey: [32]byte{1}, ClusterID: "cluster-1",
		IdentityClass: "RSA-2048", ManyIdentities: "a reason", NodeName: "node-1", SignerName: csr.SignerServingTPM, Purpose: csr.PurposeServing,
		RequestHash: [32]byte{2}, ClaimedProviderID: csr.NewClaimed("sim://claimed"),
		Granted: csr.Grant{ProviderID: "sim://node-1", DNSNames: []string{"node-1.example.com"},
			IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, NotAfter: time.Date(2030, 1, 3, 4, 5, 6, 0, zone)},
		Key: key, TPMResident: true, ResidenceStanding: attest.Proven,
		IssuedAt: time.Date(2030, 1, 2, 4, 5, 6, 0, zone), NotAfter: time.Date(2030, 1, 2, 4, 15, 6, 0, zone),
		Details: struct{ Secret *big.Int }{big.NewInt(815)},
	}
}

const resultGolden = `{
  "stage": "answer",
  "provider": "tpm",
  "road": "ek",
  "machine": "ek:sha256:00ff",
  "machineStanding": "proven",
  "machineKey": "0100000000000000000000000000000000000000000000000000000000000000",
  "identityClass": "RSA-2048",
  "manyIdentities": "a reason",
  "clusterID": "cluster-1",
  "nodeName": "node-1",
  "signerName": "cluster.x-k8s.io/kubelet-serving-tpm",
  "purpose": "serving",
  "requestHash": "0200000000000000000000000000000000000000000000000000000000000000",
  "claimedProviderID": "sim://claimed",
  "granted": {
    "providerID": "sim://node-1",
    "dnsNames": [
      "node-1.example.com"
    ],
    "ipAddresses": [
      "192.0.2.1"
    ],
    "notAfter": "2030-01-03T03:05:06Z"
  },
  "keyHash": "GENERATOR",
  "tpmResident": true,
  "residenceStanding": "proven",
  "issuedAt": "2030-01-02T03:05:06Z",
  "notAfter": "2030-01-02T03:15:06Z",
  "facts": [
    {
      "standing": "proven",
      "name": "machine",
      "value": "ek:sha256:00ff"
    },
    {
      "standing": "proven",
      "name": "challenge",
      "value": "of 2030-01-02T03:05:06Z, answered"
    },
    {
      "standing": "proven",
      "name": "request",
      "value": "0200000000000000000000000000000000000000000000000000000000000000"
    },
    {
      "standing": "vouched",
      "name": "node",
      "value": "node-1"
    },
    {
      "standing": "vouched",
      "name": "provider ID",
      "value": "sim://node-1"
    },
    {
      "standing": "claimed",
      "name": "provider ID",
      "value": "sim://claimed"
    }
  ]
}`

// The document of a Result has the form that it is documented to have, whichever way a Result
// gets into encoding/json.
func TestResultDocument(t *testing.T) {
	r := fullResult()
	hash := testkit.Must(csr.SPKIHash(r.Key))
	want := strings.Replace(resultGolden, "GENERATOR", fmt.Sprintf("%x", hash), 1)
	for name, v := range map[string]any{"a pointer": r, "a value": *r, "a field": struct{ R any }{*r}, "an element": []attest.Result{*r}} {
		t.Run(name, func(t *testing.T) {
			got := testkit.Must(json.MarshalIndent(v, "", "  "))
			if v == any(r) || reflect.TypeOf(v) == reflect.TypeOf(*r) {
				if diff := cmp.Diff(want, string(got)); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			}
			if strings.Contains(string(got), "815") || strings.Contains(string(got), "Curve") {
				t.Errorf("more than the documented form:\n%s", got)
			}
		})
	}
}

// An empty Result has the required members and no others.
func TestResultDocumentOfNothing(t *testing.T) {
	got, err := json.Marshal(attest.Result{})
	want := `{"stage":"stage(?)","provider":"","road":"ak","machine":"","nodeName":"","purpose":"purpose(0)","tpmResident":false,"facts":[{"standing":"","name":"machine","value":""}]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	var none *attest.Result
	if got, err := json.Marshal(none); err != nil || string(got) != "null" {
		t.Errorf("got %s, %v", got, err)
	}
}

// Every exported field of a Result changes its document, or is left out for a reason.
func TestResultDocumentIsWhole(t *testing.T) {
	leftOut := map[string]string{
		"Details": "its form is that of the kind's package; its readable part is in facts",
	}
	seen := 0
	for field := range reflect.TypeFor[attest.Result]().Fields() {
		if !field.IsExported() {
			continue
		}
		seen++
		without := fullResult()
		v := reflect.ValueOf(without).Elem().FieldByIndex(field.Index)
		if v.IsZero() {
			t.Errorf("%s: fullResult leaves it empty", field.Name)
		}
		v.SetZero()
		full, err1 := json.Marshal(fullResult())
		less, err2 := json.Marshal(without)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if same := slices.Equal(full, less); same != (leftOut[field.Name] != "") {
			t.Errorf("%s: left out of the document: %t; for a reason: %q", field.Name, same, leftOut[field.Name])
		}
		delete(leftOut, field.Name)
	}
	if seen < 10 || len(leftOut) != 0 {
		t.Errorf("%d fields; reasons for what is no field: %v", seen, leftOut)
	}
}

// A Result is kept as a document, from which any program can read it.
func ExampleResult_MarshalJSON() {
	result := &attest.Result{Stage: attest.StageAnswer, Provider: "tpm", Road: attest.RoadEK, Machine: "ek:sha256:00ff", MachineStanding: attest.Proven,
		NodeName: "node-1", Purpose: csr.PurposeClient, IssuedAt: time.Unix(1772452740, 0), NotAfter: time.Unix(1772453340, 0)}
	text, err := json.Marshal(result)
	if err != nil {
		fmt.Println(err)
		return
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(document["stage"], document["machine"], document["machineStanding"], document["nodeName"], document["issuedAt"])
	fmt.Println(document["facts"].([]any)[0].(map[string]any)["value"])
	// Output:
	// answer ek:sha256:00ff proven node-1 2026-03-02T11:59:00Z
	// ek:sha256:00ff
}
