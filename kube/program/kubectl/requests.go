package kubectl

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// The place of the controller's configuration, according to kube/deploy.
const (
	defaultNamespace = "nodeattest-system"
	configMap        = "node-attestation"
	configKey        = "config.yaml"
	// The parts of an inventory in ConfigMaps of its own (component inventories): their names with numbers from 1 to
	// maxInventoryParts, and the key in each.
	inventoryPart     = "node-attestation-inventory-"
	inventoryKey      = "inventory.yaml"
	maxInventoryParts = 16
)

// pageSize is how many objects are listed at once.
const pageSize = 500

// eachRequest calls a function for each request.
func (p *plugin) eachRequest(ctx context.Context, each func(r *csr.Request)) error {
	_, err := requests.Each(ctx, p.api, fields.Everything(), func(o *certificatesv1.CertificateSigningRequest) { each(controller.Request(o)) })
	return err
}

// refused reports whether a request was denied because its machine is not recorded as the node: every
// check before membership has passed.
func refused(r *csr.Request) bool {
	reason := csr.Decide(attest.NotMember("")).Reason
	return slices.ContainsFunc(r.Status.Conditions, func(c csr.Condition) bool {
		return c.Type == csr.ConditionDenied && c.Reason == reason
	})
}

// A candidate is the machine that a request states, and the node name that it asks for.
type candidate struct {
	nodeName string
	machine  attest.Identity
	provider string
	scope    membership.Scope
	unread   string // the provider block, if no kind reads the evidence
}

var errEvidence = errors.New("its evidence is of a kind that this program does not read")

// A waiting machine is a candidate that was refused because no record admits it, with its newest request.
type waiting struct {
	candidate
	request, requester string
	created            time.Time
	// issuer is that of its TPM's certificate; self says that the node itself has filed one of its requests.
	issuer string
	self   bool
}

// waitingOf reads the machine from a request. With errEvidence it returns the requested node name and
// the provider block.
func (p *plugin) waitingOf(r *csr.Request) (*waiting, error) {
	parsed := r.Parsed()
	bundle, err := parsed.Bundle()
	if err != nil {
		return nil, err
	}
	pkcs10, err := parsed.PKCS10()
	if err != nil {
		return nil, err
	}
	c := &waiting{request: r.Metadata.Name, requester: r.User.Username, created: r.Metadata.CreationTimestamp}
	if name, ok := strings.CutPrefix(pkcs10.CSR.Subject.CommonName, csr.NodeUserPrefix); ok {
		c.nodeName = name
		c.self = r.User.Username == pkcs10.CSR.Subject.CommonName
	}
	m, err := attest.ReadMessage(parsed, p.kinds...)
	switch {
	case m.Provider != "" && !slices.ContainsFunc(p.kinds, func(k attest.Kind) bool { return k.Describe().Provider == m.Provider }):
		c.unread = bundle.Provider
		return c, errEvidence
	case err != nil:
		return nil, err
	}
	c.machine, c.provider, c.scope = m.Machine, m.Provider, membership.Scope{Cluster: ownCluster, Road: m.Road}
	if m.Provider == tpm.Provider {
		c.issuer = issuerOf(m.Evidence.Certificates)
	} else {
		c.scope.Provider = m.Provider
	}
	if m.Road == attest.RoadEK {
		c.scope.IdentityClass = algorithm(m.MachineKey)
	}
	_, err = membership.ParseScope(c.scope.String()) // all but the cluster, which no record names
	return c, err
}

// issuerOf names the issuer of a TPM's certificate, of which the first one is the EK's or the AK's.
func issuerOf(chain [][]byte) string {
	if len(chain) == 0 {
		return "no certificate"
	}
	if ek, err := tpmcert.ParseEK(chain[0]); err == nil {
		return ek.Certificate.Issuer.String()
	}
	c, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return "an issuer that cannot be read"
	}
	return c.Issuer.String()
}

// configuration is the controller's settings and inventory. It is nil without an error if the ConfigMap
// does not exist or the user may not read it.
type configuration struct {
	settings *settings.Settings
	listed   *settings.Listed
}

func (p *plugin) configuration(ctx context.Context) (*configuration, error) {
	var object corev1.ConfigMap
	err := p.client.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: configMap}, &object)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := new(configuration)
	if c.settings, err = settings.Parse([]byte(object.Data[configKey]), p.others...); err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s, %s: %w", p.namespace, configMap, configKey, err)
	}
	texts, file := map[string][]byte{}, path.Base(c.settings.Inventory.File)
	if text, ok := object.Data[file]; ok {
		texts[file] = []byte(text)
	} else if path.Ext(file) == "" { // a folder
		if err := p.readParts(ctx, texts); err != nil {
			return nil, err
		}
	}
	if len(texts) == 0 {
		return c, nil
	}
	c.listed = c.settings.ParseParts(texts)
	problems := c.listed.Problems()
	if _, ok := texts[file]; ok && len(problems) != 0 {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", p.namespace, configMap, problems[0])
	}
	p.warn(problems)
	return c, nil
}

// warn reports some problems of an inventory that is used as far as it can be read.
func (p *plugin) warn(problems []error) {
	for _, problem := range problems[:min(len(problems), maxShown)] {
		fmt.Fprintln(p.err, "warning:", problem)
	}
	if more := len(problems) - maxShown; more > 0 {
		fmt.Fprintf(p.err, "warning: the inventory has %d more errors\n", more)
	}
}

// readParts reads the ConfigMaps that an inventory of several has. A ConfigMap without the key is a part that cannot be
// read.
func (p *plugin) readParts(ctx context.Context, texts map[string][]byte) error {
	for n := 1; n <= maxInventoryParts; n++ {
		var object corev1.ConfigMap
		name := inventoryPart + strconv.Itoa(n)
		switch err := p.client.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, &object); {
		case err == nil:
			texts["ConfigMap "+name] = []byte(object.Data[inventoryKey])
		case apierrors.IsForbidden(err): // some parts alone would say of the others' nodes that they are in none
			clear(texts)
			return nil
		case !apierrors.IsNotFound(err):
			return err
		}
	}
	return nil
}
