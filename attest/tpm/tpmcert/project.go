package tpmcert

import (
	"crypto/x509"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkCertificateProject: the certificate does not name an instance of one of the profile's
// projects.
const checkCertificateProject refusal.Check = "certificate-project"

// checkProject requires Google's instance-identity extension to name one of the projects, if a
// profile lists any.
func checkProject(cert *x509.Certificate, projects []string, profile string) error {
	if len(projects) == 0 {
		return nil
	}
	got := "no instance"
	if e := extension(cert, oid.KubernetesNodeProviderIdentifier); e != nil {
		instance, err := oid.ParseGCEInstance(e.Value)
		switch {
		case err != nil:
			return &refusal.Error{Check: checkCertificateProject, Got: "a bad instance-identity extension", Err: err}
		case slices.Contains(projects, instance.ProjectID):
			return nil
		}
		got = "project " + instance.ProjectID
	}
	return checkCertificateProject.Refuse(got, "one of "+strings.Join(projects, ", ")+", by profile "+profile)
}
