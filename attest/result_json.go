package attest

import (
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
)

// MarshalJSON returns a Result as a document to be kept, or shown to people:
//
//	{
//	  "stage": "answer", "provider": "tpm", "road": "ak",
//	  "machine": "ak:sha256:...", "machineStanding": "asserted", "machineKey": "d8b9...",
//	  "identityClass": "...", "manyIdentities": "...", "clusterID": "...",
//	  "nodeName": "...", "signerName": "...", "purpose": "client",
//	  "requestHash": "fce7...", "claimedProviderID": "...",
//	  "granted": {"providerID": "...", "dnsNames": [], "ipAddresses": [], "notAfter": "..."},
//	  "keyHash": "3f0a...", "tpmResident": true, "residenceStanding": "proven",
//	  "issuedAt": "2026-03-02T11:59:00Z", "notAfter": "2026-03-02T12:09:00Z",
//	  "facts": [{"standing": "proven", "name": "...", "value": "..."}]
//	}
//
// Names of members do not change. Times are RFC 3339 in UTC, hashes lower-case hexadecimal;
// keyHash is [csr.SPKIHash] of Key. A member whose value is empty or unknown is left out,
// except for stage, provider, road, machine, nodeName, purpose, tpmResident and facts.
// It holds no secret. Details are left out: their readable part is in facts ([Result.Facts]). The
// document is not signed, so it proves nothing.
func (r Result) MarshalJSON() ([]byte, error) {
	d := resultDocument{
		Stage: r.Stage.String(), Provider: r.Provider, Road: r.Road.String(),
		Machine: r.Machine, MachineStanding: r.MachineStanding, MachineKey: hashText(r.MachineKey),
		IdentityClass: r.IdentityClass, ManyIdentities: r.ManyIdentities, ClusterID: r.ClusterID,
		NodeName: r.NodeName, SignerName: r.SignerName, Purpose: r.Purpose.String(),
		RequestHash: hashText(r.RequestHash), ClaimedProviderID: r.ClaimedProviderID.Unproven(),
		TPMResident: r.TPMResident, ResidenceStanding: r.ResidenceStanding,
		IssuedAt: r.IssuedAt.UTC(), NotAfter: r.NotAfter.UTC(), Facts: r.Facts(),
	}
	if a := &r.Granted; a.ProviderID != "" || len(a.DNSNames)+len(a.IPAddresses) != 0 || !a.NotAfter.IsZero() {
		d.Granted = &grantDocument{ProviderID: a.ProviderID, DNSNames: a.DNSNames, IPAddresses: a.IPAddresses, NotAfter: a.NotAfter.UTC()}
	}
	if hash, err := csr.SPKIHash(r.Key); err == nil {
		d.KeyHash = hashText(hash)
	}
	return json.Marshal(&d)
}

// resultDocument is the JSON form of a Result.
type resultDocument struct {
	Stage             string         `json:"stage"`
	Provider          string         `json:"provider"`
	Road              string         `json:"road"`
	Machine           Identity       `json:"machine"`
	MachineStanding   Standing       `json:"machineStanding,omitempty"`
	MachineKey        string         `json:"machineKey,omitempty"`
	IdentityClass     string         `json:"identityClass,omitempty"`
	ManyIdentities    string         `json:"manyIdentities,omitempty"`
	ClusterID         string         `json:"clusterID,omitempty"`
	NodeName          string         `json:"nodeName"`
	SignerName        string         `json:"signerName,omitempty"`
	Purpose           string         `json:"purpose"`
	RequestHash       string         `json:"requestHash,omitempty"`
	ClaimedProviderID string         `json:"claimedProviderID,omitempty"`
	Granted           *grantDocument `json:"granted,omitempty"`
	KeyHash           string         `json:"keyHash,omitempty"`
	TPMResident       bool           `json:"tpmResident"`
	ResidenceStanding Standing       `json:"residenceStanding,omitempty"`
	IssuedAt          time.Time      `json:"issuedAt,omitzero"`
	NotAfter          time.Time      `json:"notAfter,omitzero"`
	Facts             []Fact         `json:"facts"`
}

type grantDocument struct {
	ProviderID  string       `json:"providerID,omitempty"`
	DNSNames    []string     `json:"dnsNames,omitempty"`
	IPAddresses []netip.Addr `json:"ipAddresses,omitempty"`
	NotAfter    time.Time    `json:"notAfter,omitzero"`
}

// hashText returns a hash in hexadecimal, "" for zeros.
func hashText(hash [message.HashSize]byte) string {
	if hash == [message.HashSize]byte{} {
		return ""
	}
	return hex.EncodeToString(hash[:])
}
