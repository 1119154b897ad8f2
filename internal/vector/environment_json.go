package vector

import "time"

// Environment is the control plane that a vector meets: its clock, configuration
// and inventory. In a Vector each member that is set replaces the common one.
type Environment struct {
	// Now is the verifier's clock.
	Now time.Time `json:"now,omitzero"`
	// ClusterIDs are the cluster's names.
	ClusterIDs []string `json:"clusterIDs,omitzero"`
	// RingKeys are the challenge keys, RingReadAt when they were read; where it is
	// absent they never grow stale.
	RingKeys   []RingKey `json:"ringKeys,omitzero"`
	RingReadAt time.Time `json:"ringReadAt,omitzero"`
	// Issuers are the trusted issuers of AK certificates.
	Issuers []Issuer `json:"issuers,omitzero"`
	// EKIssuers are the trusted issuers of EK certificates, AllowedEKs the identities
	// of EKs that are trusted without a chain. Where both are absent, the road of the
	// EK certificate is closed.
	EKIssuers  []EKIssuer `json:"ekIssuers,omitzero"`
	AllowedEKs []string   `json:"allowedEKs,omitzero"`
	// DeniedTPMs are refused whoever vouches for them.
	DeniedTPMs []DeniedTPM `json:"deniedTPMs,omitzero"`
	// GoodPCRs must be quoted by every answer, with these values; absent: no answer
	// needs a quote.
	GoodPCRs []PCR `json:"goodPCRs,omitzero"`
	// Policy is the node policy.
	Policy *Policy `json:"policy,omitzero"`
	// Machines is the inventory.
	Machines []Machine `json:"machines,omitzero"`
	// Members says which machine may be which node.
	Members []Member `json:"members,omitzero"`
	// FirstUse, where it is there, decides in the place of Members.
	FirstUse *FirstUse `json:"firstUse,omitempty"`
	// Records are the certificates that were issued through attestation.
	Records []Record `json:"records,omitzero"`
	// RequireTPMResident refuses keys outside the TPM.
	RequireTPMResident bool `json:"requireTPMResident,omitempty"`
}

// RingKey is a challenge key.
type RingKey struct {
	// ID is the identifier, 8 bytes in hexadecimal; Secret has 32 bytes.
	ID     string `json:"id"`
	Secret []byte `json:"secret"`
	// ActiveAt and RetiredAt are as in attest.RingKey.
	ActiveAt  time.Time `json:"activeAt"`
	RetiredAt time.Time `json:"retiredAt,omitzero"`
}

// Issuer is an issuer of AK certificates: its Roots in DER, and its Profile.
type Issuer struct {
	Roots   [][]byte `json:"roots"`
	Profile Profile  `json:"profile"`
}

// Profile is a tpmcert.Profile.
type Profile struct {
	// Name is for people.
	Name string `json:"name"`
	// KeyUsage has the names of RFC 5280, section 4.2.1.3.
	KeyUsage []string `json:"keyUsage"`
	// ExtKeyUsage and Extensions are dotted decimals, NoExtKeyUsage admits
	// certificates without the former.
	ExtKeyUsage   []string `json:"extKeyUsage,omitempty"`
	NoExtKeyUsage bool     `json:"noExtKeyUsage,omitempty"`
	// RequireDirectoryName asks for a TCG directory name.
	RequireDirectoryName bool     `json:"requireDirectoryName,omitempty"`
	Extensions           []string `json:"extensions,omitempty"`
	// Identity lists the kinds "othername", "gce" and "ak".
	Identity []string `json:"identity"`
	// AllowAKBelowOtherKeys and InsecureAllowSHA1Signature are as in tpmcert.Profile.
	AllowAKBelowOtherKeys      bool `json:"allowAKBelowOtherKeys,omitempty"`
	InsecureAllowSHA1Signature bool `json:"insecureAllowSHA1Signature,omitempty"`
}

// Policy is a csr.Policy without its callbacks: SignerNames, RequireProviderID,
// RequireFlag and ReservedDNSNames are as there.
type Policy struct {
	SignerNames       []string `json:"signerNames"`
	RequireProviderID bool     `json:"requireProviderID,omitempty"`
	// Flag is dotted decimal.
	Flag        string `json:"flag,omitempty"`
	RequireFlag bool   `json:"requireFlag,omitempty"`
	// ReservedIPs are prefixes.
	ReservedIPs      []string `json:"reservedIPs,omitempty"`
	ReservedDNSNames []string `json:"reservedDNSNames,omitempty"`
}

// Machine is what the inventory answers when it is asked for the node name Asked:
// Name, UID, NodeName, ProviderID, DNSNames, IPAddresses and BootstrapReady of a
// csr.Machine.
type Machine struct {
	Asked          string   `json:"asked"`
	Name           string   `json:"name"`
	UID            string   `json:"uid,omitempty"`
	NodeName       string   `json:"nodeName"`
	ProviderID     string   `json:"providerID,omitempty"`
	DNSNames       []string `json:"dnsNames,omitempty"`
	IPAddresses    []string `json:"ipAddresses,omitempty"`
	BootstrapReady bool     `json:"bootstrapReady"`
}

// Member says that the machine with the identity Machine may be the node NodeName,
// and which ProviderID, DNSNames and IPAddresses are vouched for then.
type Member struct {
	NodeName    string   `json:"nodeName"`
	Machine     string   `json:"machine"`
	ProviderID  string   `json:"providerID,omitempty"`
	DNSNames    []string `json:"dnsNames,omitempty"`
	IPAddresses []string `json:"ipAddresses,omitempty"`
}

// Record is a certificate that was issued: CredentialID, NodeName and SignerName of
// a csr.IssuedRecord.
type Record struct {
	CredentialID string `json:"credentialID"`
	NodeName     string `json:"nodeName"`
	SignerName   string `json:"signerName"`
}
