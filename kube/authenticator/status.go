package authenticator

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Status is the status of a node's certificates. It contains no secrets.
type Status struct {
	NodeName string `json:"nodeName"`
	// Kind is the kind of evidence, and Server the address of the API server.
	Kind   string `json:"kind"`
	Server string `json:"server,omitempty"`
	// ClusterID is the cluster ID that the node attests for: with several CAs, their IDs joined
	// by " or ", of which the API server's certificate selects one. It is "" if Problems says why.
	ClusterID string `json:"clusterID,omitempty"`
	// Daemon says whether a daemon is running.
	Daemon bool `json:"daemon"`
	// Usable says whether there is a client certificate that can be used now.
	Usable bool `json:"usable"`
	// Recoverable says whether the node can get a certificate without a bootstrap token.
	Recoverable bool `json:"recoverable"`
	// Certificates has the client certificate first.
	Certificates []CertificateStatus `json:"certificates"`
	// Problems need an administrator.
	Problems []string `json:"problems,omitempty"`
}

// CertificateStatus is the status of one certificate.
type CertificateStatus struct {
	// Purpose is client, serving or recovery.
	Purpose    string `json:"purpose"`
	SignerName string `json:"signerName"`
	File       string `json:"file"`
	// Usable says whether the certificate can be used now. The fields from Subject to Renew describe
	// the stored certificate, if there is one.
	Usable  bool   `json:"usable"`
	Subject string `json:"subject,omitempty"`
	Issuer  string `json:"issuer,omitempty"`
	// CredentialID identifies the certificate in audit logs and the control plane's records.
	CredentialID string    `json:"credentialID,omitempty"`
	Names        []string  `json:"names,omitempty"` // of a serving certificate
	Received     time.Time `json:"received,omitzero"`
	NotAfter     time.Time `json:"notAfter,omitzero"`
	Renew        time.Time `json:"renew,omitzero"` // never, without evidence
	// Failures, LastAttempt, NextAttempt and LastError describe the attempts since the last success.
	Failures    int       `json:"failures,omitempty"`
	LastAttempt time.Time `json:"lastAttempt,omitzero"`
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
	LastError   string    `json:"lastError,omitempty"`
	// LastResult of an attempt is obtained, denied, failed or, until it has ended, unfinished; "" before
	// the first attempt. LastReason names the cause of LastError in CamelCase. It has a fixed set of
	// values: a program that denies requests cannot add to them.
	LastResult string `json:"lastResult,omitempty"`
	LastReason string `json:"lastReason,omitempty"`
	// Obtained, Denied and Failed count the attempts that have ended, by result, of all processes.
	Obtained uint64 `json:"obtained,omitempty"`
	Denied   uint64 `json:"denied,omitempty"`
	Failed   uint64 `json:"failed,omitempty"`
}

// Status reads the folder and the configuration. It calls neither the machine's evidence nor the API
// server, and does not wait.
func (a *Authenticator) Status() *Status {
	v := a.snapshot(caller{})
	status := &Status{NodeName: a.config.NodeName, Kind: a.config.provider(), Daemon: a.store.Held(daemonName)}
	status.Usable = v.next(a.slots[0]).use != nil // the previous certificate counts too
	for _, s := range a.slots {
		certificate := v.status(s)
		if s.Purpose == csr.PurposeRecovery {
			status.Recoverable = certificate.Usable
		}
		if refused := v.state[s.file].Refused; len(refused) != 0 {
			status.problem("the API server rejected client certificate " + strings.Join(refused, ", ") + " (401)")
		}
		soon := certificate.Received.Add(certificate.NotAfter.Sub(certificate.Received) / 5 * 4)
		if s.Once && certificate.Usable && v.now.After(soon) {
			status.problem("the certificate is not renewed and ends " + certificate.NotAfter.Format(time.RFC3339) + ": " + a.config.another())
		}
		status.Certificates = append(status.Certificates, certificate)
	}
	if err := a.kubelet.CheckRunning(); err != nil {
		status.problem(err.Error())
	}
	anonymous, configured, err := a.connection()
	if err == nil {
		status.Server = anonymous.Host
		var ids []string
		ids, err = a.clusterIDs(anonymous)
		status.ClusterID = strings.Join(ids, " or ")
	}
	if err != nil {
		status.problem("API server: " + err.Error())
	} else if !status.Usable && !status.Recoverable && !hasCredential(configured) {
		status.problem("no usable certificate, no recovery certificate and no bootstrap token: " + a.freshToken())
	}
	return status
}

func (s *Status) problem(text string) { s.Problems = append(s.Problems, text) }

// status returns the status of one certificate.
func (v *snapshot) status(s *slot) CertificateStatus {
	t := v.state[s.file]
	c := CertificateStatus{Purpose: s.Purpose.String(), SignerName: s.signer, File: s.store.Path(s.file),
		Failures: t.Failures, LastAttempt: t.Last, NextAttempt: t.Next, LastError: t.Error,
		LastResult: t.Result, LastReason: t.Reason, Obtained: t.Obtained, Denied: t.Denied, Failed: t.Failed}
	p := v.certificates(s).have
	if p == nil {
		return c
	}
	c.Usable, c.Received, c.NotAfter = p.Usable(v.now), p.Received, p.Leaf.NotAfter.UTC()
	c.Subject, c.Issuer, c.CredentialID = p.Leaf.Subject.String(), p.Leaf.Issuer.String(), csr.CredentialID(p.Leaf)
	if !s.Once {
		c.Renew = p.Renew
	}
	c.Names = append(c.Names, p.Leaf.DNSNames...)
	for _, ip := range p.Leaf.IPAddresses {
		c.Names = append(c.Names, ip.String())
	}
	return c
}

// Write writes the status in a form for people to read.
func (s *Status) Write(w io.Writer, now time.Time) error {
	if s == nil || w == nil {
		return errors.New("authenticator: Status.Write of a nil Status or to a nil Writer")
	}
	b := new(strings.Builder)
	line := func(name, format string, args ...any) {
		for n := range args {
			if text, ok := args[n].(string); ok { // which may come from the API server
				args[n] = refusal.Escape(text)
			}
		}
		fmt.Fprintf(b, "%-14s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	line("Node", "%s, evidence %s", s.NodeName, s.Kind)
	line("API server", "%s, cluster ID %s", cmp.Or(s.Server, "unknown"), cmp.Or(s.ClusterID, "unknown"))
	line("Daemon", "%s", map[bool]string{true: "running", false: "not running: the plugin renews when the kubelet asks"}[s.Daemon])
	for _, c := range s.Certificates {
		b.WriteString("\n")
		line("Certificate", "%s, by %s", c.Purpose, c.SignerName)
		switch {
		case c.Subject == "":
			line("  state", "not obtained yet")
		case c.Usable:
			line("  state", "valid until %s (%s left)", c.NotAfter.Format(time.RFC3339), c.NotAfter.Sub(now).Round(time.Second))
			if c.Renew.IsZero() {
				line("  renewal", "not renewed: the node loses access then; see kubectl nodeattest release")
				break
			}
			line("  renewal", "%s (in %s)", c.Renew.Format(time.RFC3339), c.Renew.Sub(now).Round(time.Second))
		default:
			line("  state", "expired %s (%s ago)", c.NotAfter.Format(time.RFC3339), now.Sub(c.NotAfter).Round(time.Second))
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
