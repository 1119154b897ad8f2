package authenticator

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Status is what is known about a node's certificates. It contains no secrets.
type Status struct {
	NodeName string `json:"nodeName"`
	// Kind is the name of the kind of evidence, and Server the address of the API server.
	Kind   string `json:"kind"`
	Server string `json:"server,omitempty"`
	// ClusterID is the cluster ID that the node attests for: one for each CA, with " or "
	// between them, if the API server's certificate decides. If there is none it is "", and
	// Problems says why.
	ClusterID string `json:"clusterID,omitempty"`
	// Daemon says whether a daemon is running.
	Daemon bool `json:"daemon"`
	// Usable says whether there is a client certificate that works now.
	Usable bool `json:"usable"`
	// Recoverable says whether the node can come back without a bootstrap token.
	Recoverable bool `json:"recoverable"`
	// Certificates are the certificates that are kept, the client certificate first.
	Certificates []CertificateStatus `json:"certificates"`
	// Problems are for a person to solve.
	Problems []string `json:"problems,omitempty"`
}

// CertificateStatus is the status of one certificate.
type CertificateStatus struct {
	// Purpose is what the certificate is for, and SignerName the signer that is asked for it.
	Purpose    string `json:"purpose"`
	SignerName string `json:"signerName"`
	File       string `json:"file"`
	// Usable says whether it works now. The fields from Subject to Renew describe the stored
	// certificate, if there is one.
	Usable  bool   `json:"usable"`
	Subject string `json:"subject,omitempty"`
	Issuer  string `json:"issuer,omitempty"`
	// CredentialID is the name that audit logs and the control plane's records use for it.
	CredentialID string    `json:"credentialID,omitempty"`
	Names        []string  `json:"names,omitempty"` // of a serving certificate
	Received     time.Time `json:"received,omitzero"`
	NotAfter     time.Time `json:"notAfter,omitzero"`
	Renew        time.Time `json:"renew,omitzero"` // never, without evidence
	// Failures, LastAttempt, NextAttempt and LastError cover the time since the last success.
	Failures    int       `json:"failures,omitempty"`
	LastAttempt time.Time `json:"lastAttempt,omitzero"`
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
	LastError   string    `json:"lastError,omitempty"`
}

// Status looks at the folder and the configuration. It queries neither the machine nor the API
// server, and does not wait.
func (a *Authenticator) Status() *Status {
	v := a.view(role{})
	s := &Status{NodeName: a.c.NodeName, Kind: a.c.provider(), Daemon: a.store.Held(daemonName)}
	s.Usable = v.next(a.items[0]).use != nil // even if it is the one before
	for _, i := range a.items {
		c := CertificateStatus{Purpose: i.Purpose.String(), SignerName: i.signer, File: i.store.Path(i.file)}
		t := v.state[i.file]
		c.Failures, c.LastAttempt, c.NextAttempt, c.LastError = t.Failures, t.Last, t.Next, t.Error
		if p := v.of(i).have; p != nil {
			c.Usable = p.Usable(v.now)
			c.Subject, c.Issuer, c.CredentialID = p.Leaf.Subject.String(), p.Leaf.Issuer.String(), csr.CredentialID(p.Leaf)
			if c.Received, c.NotAfter = p.Received, p.Leaf.NotAfter.UTC(); !i.Once {
				c.Renew = p.Renew
			} else if c.Usable && v.now.After(p.Received.Add(c.NotAfter.Sub(p.Received)/5*4)) {
				s.Problems = append(s.Problems, "the certificate is not renewed and ends "+c.NotAfter.Format(time.RFC3339)+": "+a.c.another())
			}
			c.Names = append(c.Names, p.Leaf.DNSNames...)
			for _, ip := range p.Leaf.IPAddresses {
				c.Names = append(c.Names, ip.String())
			}
		}
		if i.Purpose == csr.PurposeRecovery {
			s.Recoverable = c.Usable
		}
		if len(t.Refused) != 0 {
			s.Problems = append(s.Problems, "the API server does not know this node by "+strings.Join(t.Refused, ", "))
		}
		s.Certificates = append(s.Certificates, c)
	}
	if err := a.kubelet.CheckRunning(); err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
	bare, own, err := a.connection()
	if err == nil {
		s.Server = bare.Host
		var ids []string
		ids, err = a.clusterIDs(bare)
		s.ClusterID = strings.Join(ids, " or ")
	}
	if err != nil {
		s.Problems = append(s.Problems, "API server: "+err.Error())
	} else if !s.Usable && !s.Recoverable && !hasCredential(own) {
		s.Problems = append(s.Problems, "no certificate that works, no recovery certificate and no bootstrap token: put a fresh token in place, "+
			"from an operator's kubectl nodeattest token "+a.c.NodeName)
	}
	return s
}

// Write writes the status in a form for people to read.
func (s *Status) Write(w io.Writer, now time.Time) error {
	if s == nil || w == nil {
		return errors.New("authenticator: no status, or nowhere to write")
	}
	b := new(strings.Builder)
	line := func(name, format string, args ...any) {
		for n := range args {
			if text, ok := args[n].(string); ok { // which may come from outside
				args[n] = refusal.Escape(text)
			}
		}
		fmt.Fprintf(b, "%-14s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	line("Node", "%s, evidence %s", s.NodeName, s.Kind)
	line("API server", "%s, cluster ID %s", orNone(s.Server), orNone(s.ClusterID))
	line("Daemon", "%s", map[bool]string{true: "running", false: "not running: the plugin renews when the kubelet asks"}[s.Daemon])
	for _, c := range s.Certificates {
		b.WriteString("\n")
		line("Certificate", "%s, by %s", c.Purpose, c.SignerName)
		switch {
		case c.Subject == "":
			line("  state", "none yet")
		case c.Usable:
			line("  state", "valid until %s (%s left)", c.NotAfter.Format(time.RFC3339), c.NotAfter.Sub(now).Round(time.Second))
			if c.Renew.IsZero() {
				line("  renewal", "none: it ends then, and so does the node, unless an operator lets it come again")
				break
			}
			line("  renewal", "%s (in %s)", c.Renew.Format(time.RFC3339), c.Renew.Sub(now).Round(time.Second))
		default:
			line("  state", "ended %s (%s ago)", c.NotAfter.Format(time.RFC3339), now.Sub(c.NotAfter).Round(time.Second))
		}
		if c.Subject != "" {
			line("  subject", "%s, from %s", c.Subject, c.Issuer)
			line("  credential", "%s", c.CredentialID)
		}
		if len(c.Names) != 0 {
			line("  names", "%s", strings.Join(c.Names, ", "))
		}
		line("  file", "%s", c.File)
		if c.LastError != "" {
			line("  last attempt", "%s failed (failures in a row: %d): %s", c.LastAttempt.Format(time.RFC3339), c.Failures, c.LastError)
			line("  next attempt", "%s", c.NextAttempt.Format(time.RFC3339))
		}
	}
	for _, p := range s.Problems {
		b.WriteString("\n")
		line("Problem", "%s", p)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func orNone(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
