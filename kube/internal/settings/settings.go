// Package settings reads the configuration file that the control plane's programs share, and makes
// the kinds of evidence, the inventory and the authorizer from it. The file is documented in
// kube/deploy/config.yaml.
package settings

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/kube/internal/members"
	"github.com/nodeattest/nodeattest/refusal"
)

const fileKind = "NodeAttestation"

// MaxInventorySize is the maximum length of an inventory in bytes, 16 MiB.
const MaxInventorySize = 16 << 20

// Settings are the whole file. Paths in it are relative to the process's folder.
type Settings struct {
	configfile.Header `json:",inline"`

	Cluster    Cluster    `json:"cluster"`
	Signers    Signers    `json:"signers"`
	TPM        TPM        `json:"tpm"`
	Inventory  Inventory  `json:"inventory"`
	Membership Membership `json:"membership"`
	Controller Controller `json:"controller"`
	Signer     Signer     `json:"signer"`
	// InsecureSigner serves the machines that cannot attest; nil: no such machines are served.
	InsecureSigner *InsecureSigner `json:"insecureSigner"`

	// known are the kinds of evidence with documents that the program knows, and sections their
	// sections of the file.
	known    []Documents
	sections map[string]configfile.Section
	// path is the file that was read, and sum the digest of its contents (Follow).
	path string
	sum  [sha256.Size]byte
	now  func() time.Time // the clock of the verifier and authorizer; nil means time.Now
	// trusting are the kinds that [Settings.Kinds] made, if they depend on roots or fetches.
	trusting map[string]*trusting
}

func (s *Settings) clock() time.Time {
	if s.now == nil {
		return time.Now()
	}
	return s.now()
}

// At returns the settings with another clock, for deciding as at another time. The copy shares the
// memory of s.
func (s *Settings) At(now time.Time) *Settings {
	at := *s
	at.now = func() time.Time { return now }
	return &at
}

// Cluster says which cluster is served.
type Cluster struct {
	// IDs are the names of the cluster that nodes state; empty: one for each CA in CAFile.
	IDs []string `json:"ids"`
	// CAFile contains the cluster's CA in PEM; empty: that of the service account, unless this is one
	// of a management cluster.
	CAFile string `json:"caFile"`
	// Namespace is where the key ring and the leases are; empty: nodeattest-system.
	Namespace string `json:"namespace"`
	// KeyRingSecret is the name of the key ring's Secret; empty: challenge-keys.
	KeyRingSecret string `json:"keyRingSecret"`
}

// Signers says which certificates are issued, and for how long.
type Signers struct {
	// Names are the signers that nodes may ask; empty: Kubernetes' own for client
	// certificates.
	Names []string `json:"names"`
	// MaxLifetime is the longest lifetime of a certificate; 0 means 24h.
	MaxLifetime metav1.Duration `json:"maxLifetime"`
	// MaxRecoveryLifetime is the longest lifetime of recovery certificates, at most 90 days; 0
	// means MaxLifetime.
	MaxRecoveryLifetime metav1.Duration `json:"maxRecoveryLifetime"`
	// BuiltInDuration is kube-controller-manager's --cluster-signing-duration, at most half of
	// MaxLifetime, or a fifth if Names has a signer of client certificates that is not
	// Kubernetes' own; 0: kubelets' own requests for serving certificates are left alone.
	BuiltInDuration metav1.Duration `json:"builtInDuration"`
	// RequireProviderID refuses nodes that state no provider ID (csr.Policy). Kubelets' own
	// requests for serving certificates cannot state one.
	RequireProviderID bool `json:"requireProviderID"`
	// ReservedIPs and ReservedDNSNames may be in no certificate (csr.Policy).
	ReservedIPs      []netip.Prefix `json:"reservedIPs"`
	ReservedDNSNames []string       `json:"reservedDNSNames"`
}

// TPM says which TPMs are trusted to be TPMs.
type TPM struct {
	// EKIssuers open the road of EK certificates.
	EKIssuers []Issuer `json:"ekIssuers"`
	// AllowedEKs are EKs that need no certificate.
	AllowedEKs []attest.Identity `json:"allowedEKs"`
	// AKIssuers open the road of AK certificates.
	AKIssuers []Issuer `json:"akIssuers"`
	// RequireResident refuses keys that are not proved to be in the TPM.
	RequireResident bool `json:"requireResident"`
	// GoodPCRs are sets of values of the SHA-256 bank by index, in hexadecimal. Each answer must
	// quote one whole set; empty: any boot chain.
	GoodPCRs []map[int]string `json:"goodPCRs"`
	// SecureBoot is "require" or "observe": the event log of each answer must explain its quote and show that
	// Secure Boot is on, or else the machine is refused, or only counted. Empty: no log is read.
	SecureBoot string `json:"secureBoot"`
}

// Issuer is one issuer of EK or AK certificates.
type Issuer struct {
	// RootsFile contains the trust anchors in PEM, IntermediatesFile CAs that nodes need not send.
	RootsFile         string `json:"rootsFile"`
	IntermediatesFile string `json:"intermediatesFile"`
	// Profile is "tcg", "google", "intel" or "tpm12" for EKs. For AKs it is "tcg", "google",
	// "azure" or "microsoft-aik"; for AKs certified by the machines' maker it is
	// "oem-hwserial", where a machine is known by its TPM, or "oem-chassis", where it is known
	// by its chassis.
	Profile string `json:"profile"`
	// Projects, with profile "google", are the IDs of the projects whose machines count; empty: any,
	// and then no machine joins by first use, as every customer of Google has some.
	Projects []string `json:"projects"`
	// Maker is the operator's name for the maker of the machines, part of their identity
	// (tpmcert.HardwareIdentity).
	Maker string `json:"maker"`
	// OtherName, with profile "tcg", has a machine known by an OtherName of its AK's
	// certificate and by nothing else.
	OtherName *OtherName `json:"othername"`
	// CRLFiles are revocation lists in DER or PEM, for EKs; RequireCRL refuses certificates of an
	// issuer without a list.
	CRLFiles   []string `json:"crlFiles"`
	RequireCRL bool     `json:"requireCRL"`
}

// OtherName says which OtherNames name machines (tpmcert.OtherNameIdentity).
type OtherName struct {
	// Issuer is the operator's name for the issuer, part of the machines' identity: issuers
	// with different roots need different ones.
	Issuer string `json:"issuer"`
	// Types are the type-ids that count, such as "1.3.6.1.5.5.7.8.3"; empty: any.
	Types []string `json:"types"`
}

// Inventory says which machines there are.
type Inventory struct {
	// File is the inventory's file. It is read again when it changes.
	File string `json:"file"`
	// ClusterAPI has the Machines of Cluster API in the place of a file.
	ClusterAPI *ClusterAPI `json:"clusterAPI"`
}

// ClusterAPI says where the Machines of a cluster are. The lease and the challenge keys are in the same
// namespace of the management cluster; cluster.namespace is one of the cluster of the nodes.
type ClusterAPI struct {
	// Kubeconfig is the path of a kubeconfig of the management cluster; empty: the service account.
	Kubeconfig string `json:"kubeconfig"`
	// Namespace and Cluster name the Cluster object.
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	// RenewPoolTokens has the controller extend the bootstrap tokens of MachinePools.
	RenewPoolTokens bool `json:"renewPoolTokens"`
	// BootstrapTokenTTL is the bootstrap provider's --bootstrap-token-ttl; zero: 15 minutes, as there.
	BootstrapTokenTTL metav1.Duration `json:"bootstrapTokenTTL"`
}

// minTokenTTL is the least lifetime of bootstrap tokens that can be renewed in time.
const minTokenTTL = 30 * time.Second

// Home is the namespace of the lease and the challenge keys.
func (s *Settings) Home() string {
	if from := s.Inventory.ClusterAPI; from != nil {
		return from.Namespace
	}
	return s.Cluster.Namespace
}

// Membership says who may be a node.
type Membership struct {
	// Mode is "Inventory", "FirstUse" or "Approval".
	Mode members.Mode `json:"mode"`
	// Kind is the kind of evidence of machines whose inventory entry names none. It is also
	// the only kind by which machines without an identity there are admitted; empty: "tpm".
	Kind string `json:"kind"`
	// Road is "ek" or "ak", for TPMs, and IdentityClass the algorithm of the EK, on the road
	// of EKs: see membership.Scope. Without TPMs both are empty.
	Road          string `json:"road"`
	IdentityClass string `json:"identityClass"`
	// RestoredAt is when etcd was last restored from a backup; nil: never. Until
	// signers.maxLifetime after that, no machine is admitted by first use, as there may be
	// machines whose records are lost but whose certificates are still valid.
	RestoredAt *metav1.Time `json:"restoredAt"`
}

// Controller is the section of the node-attestation-controller.
type Controller struct {
	// MetricsAddress and HealthAddress are where it listens; empty: "127.0.0.1:8080", since
	// every client that reaches the metrics reads them, and ":8081"; "0": nowhere.
	MetricsAddress string `json:"metricsAddress"`
	HealthAddress  string `json:"healthAddress"`
	// RequesterRate, RequesterBurst and Workers are as in controller.Config.
	RequesterRate  float64 `json:"requesterRate"`
	RequesterBurst int     `json:"requesterBurst"`
	Workers        int     `json:"workers"`
	// RotateKeysAfter is how long a challenge key is used; 0 means 30 days.
	RotateKeysAfter metav1.Duration `json:"rotateKeysAfter"`
	// AcceptedBindings are the ClusterRoleBindings that the operator does not consider to be
	// ways around attestation.
	AcceptedBindings []string `json:"acceptedBindings"`
	// InsecureAllowWaysAround lets it begin to enforce although there are ways around attestation.
	InsecureAllowWaysAround bool `json:"insecureAllowWaysAround"`
}

// Signer is the section of the node-attestation-signer.
type Signer struct {
	// CertificateFile contains the CA's chain in PEM, the issuing CA first, and KeyFile its
	// key (PKCS #8, PKCS #1 or SEC 1). Both are read again when they change.
	CertificateFile string `json:"certificateFile"`
	KeyFile         string `json:"keyFile"`
	// MetricsAddress and HealthAddress are as in Controller; empty: "127.0.0.1:8082" and
	// ":8083".
	MetricsAddress string `json:"metricsAddress"`
	HealthAddress  string `json:"healthAddress"`
}

// Read reads and checks a file, for a program that adds some kinds to the built-in ones. An unknown or duplicate field is an error, and so is a second document. The sections of the
// kinds are read by [Settings.Kinds].
func Read(path string, kinds ...Documents) (*Settings, error) {
	text, err := files.Read(path, configfile.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	s, err := Parse(text, kinds...)
	if err == nil {
		s.path = path
		s.sum, err = s.sumOf(text)
	}
	if err != nil {
		return nil, fmt.Errorf("settings: %s: %w", path, err)
	}
	return s, nil
}

// Parse is [Read] for the text of a file.
func Parse(text []byte, kinds ...Documents) (*Settings, error) {
	s := new(Settings)
	if err := s.know(kinds); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(s.known))
	for _, k := range s.known {
		names = append(names, k.Name)
	}
	var err error
	if s.sections, err = configfile.Decode(text, s, names...); err != nil {
		return nil, err
	}
	s.complete()
	return s, s.check()
}

// complete fills in the defaults.
func (s *Settings) complete() {
	from := s.Inventory.ClusterAPI
	if from == nil || from.Kubeconfig != "" || len(s.Cluster.IDs) != 0 { // else it is the management cluster's
		s.Cluster.CAFile = cmp.Or(s.Cluster.CAFile, "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
	}
	if from != nil { // one process for each Cluster, in one namespace
		s.Cluster.KeyRingSecret = cmp.Or(s.Cluster.KeyRingSecret, from.Cluster+"-challenge-keys")
	}
	s.Cluster.Namespace = cmp.Or(s.Cluster.Namespace, "nodeattest-system")
	s.Cluster.KeyRingSecret = cmp.Or(s.Cluster.KeyRingSecret, "challenge-keys")
	s.Membership.Kind = cmp.Or(s.Membership.Kind, tpm.Provider)
	s.Controller.MetricsAddress = cmp.Or(s.Controller.MetricsAddress, "127.0.0.1:8080")
	s.Controller.HealthAddress = cmp.Or(s.Controller.HealthAddress, ":8081")
	s.Signer.MetricsAddress = cmp.Or(s.Signer.MetricsAddress, "127.0.0.1:8082")
	s.Signer.HealthAddress = cmp.Or(s.Signer.HealthAddress, ":8083")
	if s.InsecureSigner != nil {
		s.InsecureSigner.complete()
	}
	if len(s.Signers.Names) == 0 {
		s.Signers.Names = []string{csr.SignerKubeAPIServerClientKubelet}
	}
	s.Signers.MaxLifetime.Duration = cmp.Or(s.Signers.MaxLifetime.Duration, csr.DefaultMaxLifetime)
	s.Signers.MaxRecoveryLifetime = cmp.Or(s.Signers.MaxRecoveryLifetime, s.Signers.MaxLifetime)
}

// check finds the errors that can be found without another file.
func (s *Settings) check() error {
	if err := cmp.Or(s.Header.Check(fileKind), s.Inventory.check()); err != nil {
		return err
	}
	if s.Cluster.CAFile == "" {
		return refusal.Config("cluster.caFile", "", "the CA of the nodes' cluster: the service account has that of the management cluster")
	}
	if err := cmp.Or(errors.Join(s.Signers.check(), s.Cluster.check(), s.Controller.check()),
		s.checkEvidence(), s.InsecureSigner.check(&s.Signer)); err != nil {
		return err
	}
	for _, name := range s.Signers.Names {
		if !kubernetesOwn(name) && !slices.Contains(s.Opened(), csr.ProviderOf(name)) {
			return refusal.Config("signers.names", refusal.Quote(name), "signers of kinds that are configured: "+strings.Join(s.Opened(), ", "))
		}
	}
	return s.checkMembership()
}

// check refuses an inventory of no source, or of two.
func (i *Inventory) check() error {
	switch {
	case i.ClusterAPI == nil && i.File == "":
		return refusal.Config("inventory.file", "", "a path")
	case i.ClusterAPI != nil && i.File != "":
		return refusal.Config("inventory.file and clusterAPI", "both", "one of them")
	case i.ClusterAPI != nil && len(validation.IsDNS1123Label(i.ClusterAPI.Namespace)) != 0:
		return refusal.Config("inventory.clusterAPI.namespace", refusal.Quote(i.ClusterAPI.Namespace), "the namespace of a Cluster")
	case i.ClusterAPI != nil && len(validation.IsDNS1123Subdomain(i.ClusterAPI.Cluster)) != 0:
		return refusal.Config("inventory.clusterAPI.cluster", refusal.Quote(i.ClusterAPI.Cluster), "the name of a Cluster")
	case i.ClusterAPI != nil && i.ClusterAPI.BootstrapTokenTTL.Duration != 0 && i.ClusterAPI.BootstrapTokenTTL.Duration < minTokenTTL:
		return refusal.Config("inventory.clusterAPI.bootstrapTokenTTL", i.ClusterAPI.BootstrapTokenTTL.Duration.String(), "0, or "+minTokenTTL.String()+" or more")
	}
	return nil
}

// check refuses names that no object can have.
func (c *Cluster) check() error {
	switch {
	case len(validation.IsDNS1123Label(c.Namespace)) != 0:
		return refusal.Config("cluster.namespace", refusal.Quote(c.Namespace), "the name of a namespace")
	case len(validation.IsDNS1123Subdomain(c.KeyRingSecret)) != 0:
		return refusal.Config("cluster.keyRingSecret", refusal.Quote(c.KeyRingSecret), "the name of a Secret")
	}
	return nil
}

// check refuses values that keyring.New and controller.New would refuse: a program that follows its
// configuration would have ended by then.
func (c *Controller) check() error {
	switch {
	case c.RequesterRate < 0 || c.RequesterBurst < 0 || c.Workers < 0:
		return refusal.Config("controller.requesterRate, requesterBurst and workers", "a negative one", "0 or more")
	case c.RotateKeysAfter.Duration != 0 && c.RotateKeysAfter.Duration < 24*time.Hour:
		return refusal.Config("controller.rotateKeysAfter", c.RotateKeysAfter.Duration.String(), "0, or a day or more")
	}
	return nil
}

// checkMembership checks who may be a node, and by which kind of evidence.
func (s *Settings) checkMembership() error {
	m := &s.Membership
	opened := s.Opened()
	switch {
	case !slices.Contains([]members.Mode{members.ModeInventory, members.ModeFirstUse, members.ModeApproval}, m.Mode):
		return refusal.Config("membership.mode", refusal.Quote(string(m.Mode)), "Inventory, FirstUse or Approval")
	case !slices.Contains(opened, m.Kind):
		return refusal.Config("membership.kind", refusal.Quote(m.Kind), "a kind that is configured: "+strings.Join(opened, ", "))
	case m.Mode == members.ModeFirstUse && m.Kind == nitro.Provider:
		return refusal.Config("membership.mode", string(m.Mode)+" with kind "+nitro.Provider, "Inventory or Approval: no document of a NitroTPM names an account, so every customer of AWS could be first")
	case m.Mode == members.ModeFirstUse && m.Kind == ec2.Provider:
		return refusal.Config("membership.mode", string(m.Mode)+" with kind "+ec2.Provider, "Inventory: any account that may assume a role of the list chooses the machine")
	case m.Mode == members.ModeFirstUse && m.Kind == tpm.Provider && s.TPM.everyCustomer(m.Road) != "":
		return refusal.Config("membership.mode", string(m.Mode)+" with profile "+s.TPM.everyCustomer(m.Road),
			"projects of that issuer, with profile "+googleProfile+", else Inventory or Approval: it certifies the machines of every customer of a platform")
	case !s.TPM.opened() && m.Road+m.IdentityClass != "":
		return refusal.Config("membership.road and identityClass", m.Road+" "+m.IdentityClass, "neither, as no TPMs are configured")
	case s.TPM.opened() && m.Road != attest.RoadEK.String() && m.Road != attest.RoadAK.String():
		return refusal.Config("membership.road", refusal.Quote(m.Road), "ek or ak")
	}
	return nil
}
