package settings

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"

	certutil "k8s.io/client-go/util/cert"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// opened reports whether any TPM is trusted.
func (t *TPM) opened() bool { return len(t.EKIssuers)+len(t.AllowedEKs)+len(t.AKIssuers) != 0 }

func (t *TPM) kind() (attest.Kind, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	return tpm.NewKind(config)
}

func (t *TPM) config() (tpm.KindConfig, error) {
	var config tpm.KindConfig
	policy, err := t.bootPolicy()
	if err != nil {
		return config, err
	}
	config.QuotePolicy, config.QuoteOptional = policy, true // it refuses answers without a quote where it needs one
	for i := range t.AKIssuers {
		issuer, err := t.AKIssuers[i].ak()
		if err != nil {
			return config, fmt.Errorf("akIssuers[%d]: %w", i, err)
		}
		config.AKIssuers = append(config.AKIssuers, issuer)
	}
	if len(t.EKIssuers)+len(t.AllowedEKs) == 0 {
		return config, nil
	}
	eks := tpmcert.EKVerifierConfig{Allowed: t.AllowedEKs}
	for i := range t.EKIssuers {
		issuer, err := t.EKIssuers[i].ek()
		if err != nil {
			return config, fmt.Errorf("ekIssuers[%d]: %w", i, err)
		}
		eks.Issuers = append(eks.Issuers, issuer)
	}
	config.EKs, err = tpmcert.NewEKVerifier(eks)
	return config, err
}

// pcrValues reads sets of values of PCRs by index, which are in hexadecimal.
func pcrValues(sets []map[int]string) ([]map[int][]byte, error) {
	values := make([]map[int][]byte, len(sets))
	for i, set := range sets {
		values[i] = make(map[int][]byte, len(set))
		for index, text := range set {
			value, err := hex.DecodeString(text)
			if err != nil {
				return nil, refusal.Config(fmt.Sprintf("goodPCRs[%d]", i), refusal.Quote(text), "hexadecimal digits")
			}
			values[i][index] = value
		}
	}
	return values, nil
}

func (i *Issuer) ak() (tpmcert.Issuer, error) {
	var issuer tpmcert.Issuer
	profiles := map[string]func() tpmcert.Profile{"tcg": tpmcert.ProfileTCG, "google": tpmcert.ProfileGoogle,
		"azure": tpmcert.ProfileAzure, "microsoft-aik": tpmcert.ProfileMicrosoftAIK}
	makers := map[string]tpmcert.IdentitySource{"oem-hwserial": tpmcert.HardwareIdentity{Issuer: i.Maker}, "oem-chassis": tpmcert.ChassisIdentity{Issuer: i.Maker}}
	profile, ok := profiles[i.Profile]
	if of := makers[i.Profile]; of != nil {
		profile, ok = func() tpmcert.Profile { return tpmcert.ProfileOEM(of) }, true
	}
	switch {
	case !ok:
		return issuer, refusal.Config("profile", refusal.Quote(i.Profile), "tcg, google, azure, microsoft-aik, oem-hwserial or oem-chassis")
	case (i.Maker != "") != (makers[i.Profile] != nil):
		return issuer, refusal.Config("maker", refusal.Quote(i.Maker)+" of profile "+i.Profile, "a name with the profiles oem-hwserial and oem-chassis, none with others")
	case i.OtherName != nil && i.Profile != "tcg":
		return issuer, refusal.Config("othername", "of profile "+i.Profile, "that of profile tcg")
	case len(i.Projects) != 0 && i.Profile != googleProfile:
		return issuer, i.noProjects()
	case i.RequireCRL || len(i.CRLFiles) != 0:
		return issuer, refusal.Config("crlFiles and requireCRL", "of an AK issuer", "those of EK issuers")
	}
	issuer.Profile = profile()
	issuer.Profile.Projects = i.Projects
	var err error
	if i.OtherName != nil {
		if issuer.Profile.Identity, err = i.OtherName.identity(); err != nil {
			return issuer, err
		}
	}
	issuer.Roots, issuer.Intermediates, err = i.certificates()
	return issuer, err
}

// googleProfile is the profile whose certificates name projects.
const googleProfile = "google"

// everyCustomer returns the profile of the first issuer for a road that certifies the machines of
// every customer of a platform and is not limited to projects, or "". tpm.Kind has the same rule.
func (t *TPM) everyCustomer(road string) string {
	issuers := t.AKIssuers
	if road == attest.RoadEK.String() {
		issuers = t.EKIssuers
	}
	n := slices.IndexFunc(issuers, func(i Issuer) bool {
		return i.Profile == googleProfile && len(i.Projects) == 0 || i.Profile == "azure" || i.Profile == "microsoft-aik"
	})
	if n < 0 {
		return ""
	}
	return issuers[n].Profile
}

func (i *Issuer) noProjects() error {
	return refusal.Config("projects", "of profile "+i.Profile, "those of profile "+googleProfile)
}

// identity is the only form in which the certificates name machines.
func (o *OtherName) identity() ([]tpmcert.IdentitySource, error) {
	source := tpmcert.OtherNameIdentity{Issuer: o.Issuer}
	if o.Issuer == "" && len(o.Types) == 0 {
		return nil, refusal.Config("othername", "neither issuer nor types", "one of them, or no othername")
	}
	for n, text := range o.Types {
		id, err := oid.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("othername.types[%d]: %w", n, err)
		}
		source.Types = append(source.Types, id)
	}
	return []tpmcert.IdentitySource{source}, nil
}

func (i *Issuer) ek() (tpmcert.EKIssuer, error) {
	var issuer tpmcert.EKIssuer
	profiles := map[string]func() tpmcert.EKProfile{"tcg": tpmcert.EKProfileTCG, "google": tpmcert.EKProfileGoogle,
		"intel": tpmcert.EKProfileIntel, "tpm12": tpmcert.EKProfileTPM12}
	profile, ok := profiles[i.Profile]
	if !ok {
		return issuer, refusal.Config("profile", refusal.Quote(i.Profile), "tcg, google, intel or tpm12")
	}
	if i.Maker != "" || i.OtherName != nil {
		return issuer, refusal.Config("maker and othername", "of an EK issuer", "those of an AK issuer")
	}
	if len(i.Projects) != 0 && i.Profile != googleProfile {
		return issuer, i.noProjects()
	}
	issuer.Profile, issuer.RequireCRL = profile(), i.RequireCRL
	issuer.Profile.Projects = i.Projects
	var err error
	if issuer.Roots, issuer.Intermediates, err = i.certificates(); err != nil || len(i.CRLFiles) == 0 {
		return issuer, err
	}
	var lists [][]byte
	for _, path := range i.CRLFiles {
		text, err := files.Read(path, configfile.MaxSize)
		if err != nil {
			return issuer, err
		}
		found, err := crlsIn(text)
		if err != nil {
			return issuer, fmt.Errorf("%s: %w", path, err)
		}
		lists = append(lists, found...)
	}
	issuer.CRLs, err = tpmcert.NewCRLStore(lists...)
	return issuer, err
}

// crlsIn returns the lists in a file: one in DER, or in PEM all that begin, with any text between
// them.
func crlsIn(text []byte) (lists [][]byte, err error) {
	begun := bytes.Count(text, []byte("-----BEGIN "))
	if block, _ := pem.Decode(text); block == nil {
		return [][]byte{text}, nil
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			return nil, refusal.Config("crlFiles", "a block "+refusal.Quote(block.Type), "blocks X509 CRL")
		}
		lists = append(lists, block.Bytes)
	}
	if len(lists) != begun {
		return nil, refusal.Config("crlFiles", fmt.Sprintf("%d blocks of which %d can be read", begun, len(lists)), "whole blocks only")
	}
	return lists, nil
}

func (i *Issuer) certificates() (roots, intermediates []*x509.Certificate, err error) {
	if i.RootsFile == "" {
		return nil, nil, refusal.Config("rootsFile", "", "a path")
	}
	if roots, err = readCertificates(i.RootsFile); err != nil || i.IntermediatesFile == "" {
		return roots, nil, err
	}
	intermediates, err = readCertificates(i.IntermediatesFile)
	return roots, intermediates, err
}

func readCertificates(path string) ([]*x509.Certificate, error) {
	text, err := files.Read(path, configfile.MaxSize)
	if err != nil {
		return nil, err
	}
	certificates, err := tpmcert.ParseCertificatesPEM(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return certificates, nil
}

// ClusterIDs returns the names of the cluster that is served.
func (s *Settings) ClusterIDs() ([]string, error) {
	if len(s.Cluster.IDs) != 0 {
		return s.Cluster.IDs, nil
	}
	cas, err := s.clusterCAs()
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(cas))
	for _, ca := range cas {
		id, err := attest.ClusterID(ca)
		if err != nil {
			return nil, fmt.Errorf("settings: cluster.caFile: %w", err)
		}
		if !slices.Contains(ids, id) { // a CA that was made anew for its key has its ID
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (s *Settings) clusterCAs() ([]*x509.Certificate, error) {
	text, err := files.Read(s.Cluster.CAFile, configfile.MaxSize)
	var cas []*x509.Certificate
	if err == nil {
		cas, err = certutil.ParseCertsPEM(text) // as Kubernetes reads the file, with text around them
	}
	if err != nil {
		return nil, fmt.Errorf("settings: cluster.caFile: %w", err)
	}
	return cas, nil
}
