package kubectl

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/claims/audit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/kube/program/internal/insecure"
	"github.com/nodeattest/nodeattest/refusal"
)

// trace follows a token or a certificate through the audit log to the machine of the node that
// requested it. It is an error if the credential does not go back to a recorded machine.
func (p *plugin) trace(ctx context.Context, credentialIDs []string) error {
	if len(credentialIDs) != 1 || len(p.auditLogs) == 0 {
		return fmt.Errorf("trace takes CREDENTIAL and --audit-log; %w", errUsage)
	}
	var logs []audit.Log
	for _, name := range p.auditLogs {
		logs = append(logs, audit.Log{Name: name, Open: func() (io.ReadCloser, error) { return openLog(name) }})
	}
	chain, err := audit.Trace(ctx, credentialIDs[0], logs...)
	if err != nil {
		return err
	}
	for i := range chain.Links {
		p.showLink(&chain.Links[i])
	}
	if chain.Logs.Unread > 0 || chain.Logs.Unnamed > 0 { // they may have more uses
		fmt.Fprintln(p.out, "the logs have", chain.Logs)
	}
	node, err := chain.Node()
	if err != nil {
		return err
	}
	record, issued, err := p.issuedTo(ctx, node, chain.Links[len(chain.Links)-1].CredentialID)
	if err != nil {
		return err
	}
	p.showMachine(record, issued)
	request, err := p.requestOf(ctx, issued.RequestUID, logs)
	if err != nil {
		return err
	}
	p.row("request", "%s", request)
	return nil
}

// openLog opens a file that can be read again, and decompresses one that kube-apiserver has rotated.
func openLog(name string) (io.ReadCloser, error) {
	if name == "-" {
		return nil, errors.New("standard input cannot be read again, as trace does for each credential: give a file")
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("no regular file: trace reads it again for each credential")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	log := struct {
		io.Reader
		io.Closer
	}{bufio.NewReader(f), f}
	magic, err := log.Reader.(*bufio.Reader).Peek(2)
	if err == nil && string(magic) == "\x1f\x8b" {
		if log.Reader, err = gzip.NewReader(log.Reader); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return log, nil
}

// row prints a line about the object above it.
func (p *plugin) row(label, format string, args ...any) {
	fmt.Fprintf(p.out, "  %-13s %s\n", label, refusal.Escape(fmt.Sprintf(format, args...)))
}

// rowOf prints a line, unless its value is empty.
func (p *plugin) rowOf(label, value string) {
	if value != "" {
		p.row(label, "%s", value)
	}
}

func (p *plugin) showLink(l *audit.Link) {
	fmt.Fprintln(p.out, refusal.Escape(l.CredentialID))
	if u := l.Uses; u.First.IsZero() {
		p.row("requests", "none in the logs")
	} else {
		p.row("requests", "%d, from %s to %s", u.Requests, second(u.First), second(u.Last))
		p.rowOf("used by", strings.Join(named(u.Users...), ", "))
		p.rowOf("from", strings.Join(u.SourceIPs, ", "))
		p.rowOf("user agents", strings.Join(u.UserAgents, ", "))
		if u.More {
			p.row("and others", "of users, addresses and agents, the first 16 are shown")
		}
	}
	for _, e := range l.Issued {
		p.row("issued", "%s, for the service account %s/%s", second(e.Time), e.Namespace, e.Name)
		by, credential := named(e.Username)[0], "a credential without ID"
		if e.Impersonated != "" {
			by += " as " + named(e.Impersonated)[0]
		}
		if e.CredentialID != "" {
			credential = named(e.CredentialID)[0]
		}
		p.row("requested by", "%s with %s, from %s, audit ID %s", by, credential, strings.Join(e.SourceIPs, ", "), e.AuditID)
	}
}

// named quotes names that could be taken for several words: the API server takes any from another issuer.
func named(names ...string) []string {
	names = slices.Clone(names)
	for i, name := range names {
		if strings.ContainsAny(name, ` ,"`) {
			names[i] = strconv.Quote(name)
		}
	}
	return names
}

func second(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// issuedTo finds the record of a node's certificate.
func (p *plugin) issuedTo(ctx context.Context, node, credentialID string) (*v1alpha1.AttestedNode, *v1alpha1.IssuedCertificate, error) {
	record := new(v1alpha1.AttestedNode)
	reader, err := p.recordsReader()
	if err == nil {
		err = reader.Get(ctx, client.ObjectKey{Name: node}, record)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("the chain ends at node %s, which has no AttestedNode: it did not join through attestation, or its record was deleted; --records takes those of a backup", node)
	case err != nil:
		return nil, nil, fmt.Errorf("the chain ends at node %s; its AttestedNode, which names the machine, was not read: %w", node, err)
	case record.Spec.Scope == insecure.Scope("").String():
		return nil, nil, fmt.Errorf("the chain ends at node %s, a node without evidence: no machine was verified", node)
	}
	n := slices.IndexFunc(record.Spec.Certificates, func(c v1alpha1.IssuedCertificate) bool { return c.CredentialID == credentialID })
	if n < 0 {
		return nil, nil, fmt.Errorf("the chain ends at a certificate of node %s that is not in its AttestedNode: it was not issued through attestation, or it has ended; "+
			"--records takes the AttestedNodes of a backup; the record is in state %s and has machine %s", node, record.Spec.State, refusal.Text(record.Spec.Machine))
	}
	return record, &record.Spec.Certificates[n], nil
}

// recordsReader reads the file of records if there is one, and otherwise the cluster.
func (p *plugin) recordsReader() (client.Reader, error) {
	if p.records == "" {
		err := p.reach()
		return p.client, err
	}
	o := new(offline)
	if err := p.readRecords(o); err != nil {
		return nil, fmt.Errorf("--records: %w", err)
	}
	return o, nil
}

func (p *plugin) showMachine(record *v1alpha1.AttestedNode, c *v1alpha1.IssuedCertificate) {
	fmt.Fprintln(p.out, "node", refusal.Text(record.Name))
	p.rowOf("machine", c.Machine)
	p.rowOf("machine UID", c.MachineUID)
	p.rowOf("provider ID", c.ProviderID)
	p.rowOf("Node UID", c.NodeUID)
	p.rowOf("key in", c.KeyResidence)
	p.row("ends", "%s", second(c.NotAfter.Time))
	state := string(record.Spec.State)
	if record.Spec.Machine != c.Machine {
		state += "; the machine is now " + record.Spec.Machine
	}
	if record.Spec.Pending != nil {
		state += "; a change is under way"
	}
	p.row("record", "%s", state)
	p.rowOf("filed with", c.FiledWith)
}

// requestOf describes the certificate request with a UID, from the cluster or the log.
func (p *plugin) requestOf(ctx context.Context, uid string, logs []audit.Log) (string, error) {
	if uid == "" {
		return "not recorded", nil
	}
	found := ""
	if p.records == "" {
		_, err := requests.Each(ctx, p.api, fields.Everything(), func(o *certificatesv1.CertificateSigningRequest) {
			if string(o.UID) == uid {
				found = fmt.Sprintf("%s (UID %s), filed %s by %s", o.Name, uid, second(o.CreationTimestamp.Time), o.Spec.Username)
			}
		})
		if err != nil || found != "" {
			return found, err
		}
	}
	events, err := audit.Changes(ctx, uid, logs...)
	for _, e := range events {
		if strings.HasPrefix(e.Resource, "certificatesigningrequests") {
			return fmt.Sprintf("%s (UID %s), %s of %s %s by %s", e.Name, uid, e.Verb, e.Resource, second(e.Time), e.Username), err
		}
	}
	return fmt.Sprintf("UID %s, which is not in the logs, nor in the cluster if it was asked", uid), err
}
