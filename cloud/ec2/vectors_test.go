package ec2

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/cloud/internal/vectors"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// environment is what all vectors have in common: these roles are admitted, and STS knows these
// sessions.
type environment struct {
	Time         time.Time         `json:"time"`
	Certificates map[string][]byte `json:"certificates"`
	Roles        []string          `json:"roles"`
	Sessions     map[string]known  `json:"sessions"`
}

// TestVectors replays the vectors that are kept: one for each case here, and no other.
func TestVectors(t *testing.T) {
	l := newLab(t)
	common := environment{testTime, map[string][]byte{}, testRoles, sessions()}
	for region, c := range l.certificates() {
		common.Certificates[region] = c.Raw
	}
	var cases vectors.Cases
	for _, a := range attacks() {
		p := l.good()
		a.make(p)
		v := vectors.Vector{Name: a.name, Expect: string(a.want), Document: p.marshal()}
		if a.want == "" {
			v.Machine = "aws:aws/" + testRegion + "/" + p.by.ARN[len(p.by.ARN)-len(testInstance):]
		}
		cases.Add(v)
	}
	var e environment
	list := testkit.Must(cases.Files(testkit.VectorFolder(t, "cloud", "ec2"), common, &e))
	config := KindConfig{Certificates: awsid.Certificates{}, Roles: e.Roles, Transport: imitation(e.Sessions)}
	for region, der := range e.Certificates {
		config.Certificates[region] = testkit.Must(x509.ParseCertificate(der))
	}
	p := testkit.Must(newPlatform(config))
	kindtest.Replay(t, p, e.Time, list)
}

// TestRead: what can be refused without a signature or a question is refused when it is read.
func TestRead(t *testing.T) {
	l := newLab(t)
	p := l.platform(t, imitation(sessions()))
	for _, a := range attacks() {
		evidence := l.good()
		a.make(evidence)
		_, err := p.Read(evidence.marshal())
		late := a.want == "" || a.want == checkTime || a.want == checkRefused || a.want == checkSession || a.want == checkRole || a.want == checkARN ||
			a.want == "awsid-signer" || a.name == "by-another-account" || a.name == "by-another-partition"
		if (err == nil) != late {
			t.Errorf("%s: %v", a.name, err)
		}
	}
}
