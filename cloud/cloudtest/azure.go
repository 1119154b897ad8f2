package cloudtest

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// Azure is a fake Azure for tests: it signs attested documents of machines, with a certificate
// below an intermediate below a root. It is safe for concurrent use.
type Azure struct {
	// Now is the clock of the documents; nil means time.Now. The certificates are valid
	// for 90 days around the real time at which the cloud was made.
	Now func() time.Time
	// Cached makes its metadata servers return the last document for this long, whatever nonce
	// is asked for, as the real ones do for hours; zero disables this.
	Cached time.Duration

	root, intermediate, leaf *authority
}

// AzureOptions describe the cloud to make.
type AzureOptions struct {
	// Name is the name in its certificates; "" means metadata.azure.com.
	Name string
	// Region is the machines' region, whose name is also in the certificate; "" means
	// westeurope.
	Region string
}

// AzureMachine is a virtual machine.
type AzureMachine struct {
	// VMID and SubscriptionID are UUIDs, which appear in lower case in the documents.
	VMID, SubscriptionID string
	// ResourceID is the ID of the machine's resource; "" means that of the virtual machine vm-1
	// in the subscription's resource group Example-RG.
	ResourceID string
}

// NewAzure makes a cloud with keys of its own.
func NewAzure(t testing.TB, o AzureOptions) *Azure {
	t.Helper()
	cloud, err := OpenAzure(o)
	return opened(t, cloud, err)
}

// OpenAzure is [NewAzure] for use outside tests.
func OpenAzure(o AzureOptions) (*Azure, error) {
	name, region := cmp.Or(o.Name, "metadata.azure.com"), cmp.Or(o.Region, "westeurope")
	now := time.Now()
	a := &Azure{}
	ca := x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		Subject: named("Example Trust", "Example Global Root G2")}
	var err error
	if a.root, err = issueRSA(nil, ca, now, 5*365*24*time.Hour); err != nil {
		return nil, err
	}
	ca.Subject, ca.MaxPathLenZero = named("Example Corporation", "Example RSA TLS Issuing CA 07"), true
	ca.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if a.intermediate, err = issueRSA(a.root, ca, now, 365*24*time.Hour); err != nil {
		return nil, err
	}
	leaf := x509.Certificate{Subject: named("Example Corporation", name), DNSNames: []string{name, region + "." + name},
		SignatureAlgorithm: x509.SHA384WithRSA,
		KeyUsage:           x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	a.leaf, err = issueRSA(a.intermediate, leaf, now, 90*24*time.Hour)
	return a, err
}

// Root is the root certificate for all documents.
func (a *Azure) Root() *x509.Certificate { return a.root.cert }

// Intermediate issued the leaf. No document contains it.
func (a *Azure) Intermediate() *x509.Certificate { return a.intermediate.cert }

// Leaf is the certificate of the key that signs documents, and is included in them.
func (a *Azure) Leaf() *x509.Certificate { return a.leaf.cert }

// azureContent is the content of a document, in Azure's order.
type azureContent struct {
	LicenseType string `json:"licenseType"`
	Nonce       string `json:"nonce"`
	Plan        struct {
		Name      string `json:"name"`
		Product   string `json:"product"`
		Publisher string `json:"publisher"`
	} `json:"plan"`
	SKU            string `json:"sku"`
	SubscriptionID string `json:"subscriptionId"`
	TimeStamp      struct {
		CreatedOn string `json:"createdOn"`
		ExpiresOn string `json:"expiresOn"`
	} `json:"timeStamp"`
	VMID string `json:"vmId"`
}

// Document is the attested document of a machine with a nonce, the DER of a PKCS #7
// SignedData. An attacker on that machine gets the same. It is good for 6 hours. If the nonce
// is empty, the platform uses the expiry time.
func (a *Azure) Document(m AzureMachine, nonce string) ([]byte, error) {
	now := clock(a.Now).UTC()
	c := azureContent{Nonce: cmp.Or(nonce, now.Add(6*time.Hour).Format("20060102-150405")), SKU: "22_04-lts",
		SubscriptionID: strings.ToLower(m.SubscriptionID), VMID: strings.ToLower(m.VMID)}
	const layout = "01/02/06 15:04:05 -0000"
	c.TimeStamp.CreatedOn, c.TimeStamp.ExpiresOn = now.Format(layout), now.Add(6*time.Hour).Format(layout)
	content, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return a.Sign(content)
}

// Sign signs any content, which no customer can make Azure do. As in the real documents, the
// digest algorithm is sha256WithRSAEncryption, there are no attributes, and the only
// certificate is the leaf.
func (a *Azure) Sign(content []byte) ([]byte, error) {
	digest := sha256.Sum256(content)
	signature, err := a.leaf.key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		addOID(b, oidSignedData)
		b.AddASN1(explicit0, func(b *cryptobyte.Builder) {
			b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
				b.AddASN1Int64(1)
				b.AddASN1(asn1.SET, func(b *cryptobyte.Builder) { addAlgorithm(b, oidSHA256WithRSA) })
				b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
					addOID(b, oidData)
					b.AddASN1(explicit0, func(b *cryptobyte.Builder) { b.AddASN1OctetString(content) })
				})
				b.AddASN1(explicit0, func(b *cryptobyte.Builder) { b.AddBytes(a.leaf.cert.Raw) })
				b.AddASN1(asn1.SET, func(b *cryptobyte.Builder) {
					b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
						b.AddASN1Int64(1)
						addSerial(b, a.leaf.cert)
						addAlgorithm(b, oidSHA256WithRSA)
						addAlgorithm(b, oidRSA)
						b.AddASN1OctetString(signature)
					})
				})
			})
		})
	})
	return b.Bytes()
}

// Serve starts the metadata server of a machine. It serves /metadata/attested/document and, in
// JSON, /metadata/instance and /metadata/instance/compute with the identifiers, each of which is
// also available as text (format=text).
func (a *Azure) Serve(m AzureMachine) *Server {
	compute := map[string]string{"subscriptionId": m.SubscriptionID, "vmId": m.VMID, "azEnvironment": "AzurePublicCloud",
		"resourceId": cmp.Or(m.ResourceID, "/subscriptions/"+m.SubscriptionID+"/resourceGroups/Example-RG/providers/Microsoft.Compute/virtualMachines/vm-1")}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metadata/instance", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string]any{"compute": compute}) })
	mux.HandleFunc("GET /metadata/instance/compute", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, compute) })
	mux.HandleFunc("GET /metadata/instance/compute/{name}", func(w http.ResponseWriter, r *http.Request) {
		text, known := compute[r.PathValue("name")]
		if !known || r.URL.Query().Get("format") != "text" {
			http.Error(w, `{"error":"Not found"}`, http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(text))
	})
	cache := &azureCache{cloud: a, machine: m}
	mux.HandleFunc("GET /metadata/attested/document", func(w http.ResponseWriter, r *http.Request) {
		document, err := cache.document(r.URL.Query().Get("nonce"))
		if err != nil {
			http.Error(w, `{"error":"Internal error"}`, http.StatusInternalServerError)
			return
		}
		writeJSON(w, map[string]string{"encoding": "pkcs7", "signature": base64.StdEncoding.EncodeToString(document)})
	})
	return serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		doubled := false
		for _, values := range query {
			doubled = doubled || len(values) > 1
		}
		switch {
		case r.Header.Get("Metadata") != "true":
			http.Error(w, `{"error":"Bad request. Required metadata header not specified"}`, http.StatusBadRequest)
		case query.Get("api-version") == "", doubled, len(query.Get("nonce")) > 32:
			http.Error(w, `{"error":"Bad request"}`, http.StatusBadRequest)
		default:
			mux.ServeHTTP(w, r)
		}
	}))
}

// azureCache keeps a metadata server's last document.
type azureCache struct {
	cloud   *Azure
	machine AzureMachine

	mu   sync.Mutex
	last []byte
	made time.Time
}

func (c *azureCache) document(nonce string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := clock(c.cloud.Now)
	if c.last != nil && now.Sub(c.made) < c.cloud.Cached {
		return c.last, nil
	}
	var err error
	c.last, err = c.cloud.Document(c.machine, nonce)
	c.made = now
	return c.last, err
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(v)
}
