package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const (
	googleProject     = "example-project"
	azureSubscription = "8a205152-b25a-417f-a676-80465535a6c9"
)

// bought names machines as they appear on their maker's invoice.
var bought = tpmcert.ChassisIdentity{Issuer: "example-oem"}

// machine is a machine that the control plane knows, or one that it does not.
type machine struct {
	nodeName string
	what     string // kind of machine, for human readers
	provider string // kind of evidence
	identity attest.Identity
	// prover makes the machine's prover; end releases its TPM.
	prover func() (p attest.Prover, end func() error, err error)
	// stranger is another machine of the same kind, which is in no list.
	stranger *machine
	// otherWay is the same machine with another kind of evidence; nil if it has none.
	otherWay *machine
}

// world is the clouds, the makers of TPMs and of machines, and the machines.
type world struct {
	vendor   *tpmsim.CA
	oem      *tpmsim.CA
	google   *cloudtest.GCE
	azure    *cloudtest.Azure
	nitro    *cloudtest.Nitro
	ec2      *cloudtest.EC2
	machines []*machine
	servers  []*cloudtest.Server
}

func newWorld() *world {
	w := &world{
		vendor: must(tpmsim.NewCA(tpmsim.CAOptions{Name: "Example Cloud"})),
		oem:    must(tpmsim.NewCA(tpmsim.CAOptions{Name: "Example OEM"})),
		google: must(cloudtest.OpenGCE()),
		azure:  must(cloudtest.OpenAzure(cloudtest.AzureOptions{})),
		nitro:  must(cloudtest.OpenNitro()),
		ec2:    must(cloudtest.OpenEC2(region)),
	}
	byEK := w.byEK("server-1")
	byEK.stranger = w.byEK("server-2")
	byAK, byToken := w.byAK(1), w.byToken(2)
	byAK.stranger, byAK.otherWay = w.byAK(666), w.byToken(1)
	byToken.stranger, byToken.otherWay = w.byToken(666), w.byAK(2)
	byAzure := w.byAzure("b1310a36-d400-46f6-82cb-6217df846586")
	byAzure.stranger = w.byAzure("00000000-d400-46f6-82cb-6217df846586")
	byNitroTPM := w.byNitroTPM("i-0123456789abcdef0")
	byNitroTPM.stranger, byNitroTPM.otherWay = w.byNitroTPM("i-0fedcba9876543210"), w.byRole("i-0123456789abcdef0")
	byRole := w.byRole("i-0123456789abcdef1")
	byRole.stranger = w.byRole("i-0fedcba9876543210")
	byIAK := w.byIAK("EX0001")
	byIAK.stranger = w.byIAK("EX0666")
	w.machines = []*machine{byAK, byEK, byToken, byAzure, byNitroTPM, byIAK, byRole}
	for n, m := range w.machines {
		m.nodeName = "node-" + strconv.Itoa(n+1)
	}
	return w
}

func (w *world) close() {
	for _, s := range w.servers {
		s.Close()
	}
}

// instance is the n-th machine of the project. Its TPM's AK certificate names it, and so do
// its tokens.
func instance(n uint64) oid.GCEInstance {
	return oid.GCEInstance{Zone: "europe-west1-b", ProjectNumber: 123456789012, ProjectID: googleProject,
		InstanceID: 4711000000000000000 + n, InstanceName: "vm-" + strconv.FormatUint(n, 10)}
}

func googleIdentity(m oid.GCEInstance) attest.Identity {
	return attest.Identity("gce:" + m.ProjectID + "/" + strconv.FormatUint(m.InstanceID, 10))
}

// byTPM makes a prover with a simulated TPM. A process can have only one simulator at a time,
// so it is started for each join; the seed makes it the same TPM again.
func (w *world) byTPM(o tpmsim.Options, ak tpm.AKSource, options func(*tpmsim.TPM) tpm.ProverOptions) func() (attest.Prover, func() error, error) {
	o.CA = cmp.Or(o.CA, w.vendor)
	return func() (attest.Prover, func() error, error) {
		simulated, err := tpmsim.Open(o)
		if err != nil {
			return nil, nil, err
		}
		prover, err := tpm.NewProver(simulated, ak, options(simulated))
		if err != nil {
			return nil, nil, errors.Join(err, simulated.Close())
		}
		return prover, func() error { return errors.Join(prover.Close(), simulated.Close()) }, nil
	}
}

// byAK is a cloud's machine whose TPM has an AK certificate.
func (w *world) byAK(n uint64) *machine {
	m := instance(n)
	return &machine{what: "the certificate of its TPM's AK", provider: tpm.Provider, identity: googleIdentity(m),
		prover: w.byTPM(tpmsim.Options{Seed: []byte(m.InstanceName), Instance: &m}, tpm.GCERSA(), func(simulated *tpmsim.TPM) tpm.ProverOptions {
			return tpm.ProverOptions{Intermediates: [][]byte{simulated.CA().AKIntermediate().Raw}}
		})}
}

// byEK is a machine with a TPM, and no cloud. Its EK has been known since it was bought.
func (w *world) byEK(name string) *machine {
	options := tpmsim.Options{Seed: []byte(name), CA: w.vendor}
	simulated := must(tpmsim.Open(options))
	digest, err := csr.SPKIHash(simulated.EKPublic(tpmsim.RSA2048))
	digest = must(digest, errors.Join(err, simulated.Close()))
	ek := tpm.EKRSA2048()
	return &machine{what: "its TPM's endorsement key", provider: tpm.Provider, identity: attest.Identity("ek:sha256:" + hex.EncodeToString(digest[:])),
		prover: w.byTPM(options, tpm.AKSource{Template: tpm.AKTemplateECDSAP256()}, func(simulated *tpmsim.TPM) tpm.ProverOptions {
			return tpm.ProverOptions{EK: &ek, Intermediates: [][]byte{simulated.CA().EKIntermediate().Raw}}
		})}
}

// byIAK is a server whose maker has certified its TPM's initial attestation key, and left key
// and certificates in the TPM. It is known from the purchase, before it is switched on.
func (w *world) byIAK(serialNumber string) *machine {
	const partNumber = "Server 1000"
	options := tpmsim.Options{
		Seed: []byte(serialNumber), CA: w.oem, EKs: []tpmsim.Algorithm{},
		Device: &tpmsim.Device{PartNumber: partNumber, SerialNumber: serialNumber, HardwareSerial: "SIM :" + serialNumber},
		AKs: []tpmsim.AK{{Algorithm: tpmsim.P256, Template: tpm.IAKTemplates(&ecdsa.PublicKey{Curve: elliptic.P256()})[0],
			Handle: 0x81020001, CertificateIndex: 0x01c90100, Chain: true}},
	}
	return &machine{what: "the attestation key that its maker certified", provider: tpm.Provider, identity: bought.Machine(partNumber, serialNumber),
		prover: w.byTPM(options, tpm.OEMIAK(), func(*tpmsim.TPM) tpm.ProverOptions { return tpm.ProverOptions{} })}
}

// byToken is a cloud's machine that asks its metadata server for identity tokens.
func (w *world) byToken(n uint64) *machine {
	server := w.google.Serve(instance(n))
	w.servers = append(w.servers, server)
	return &machine{what: "an identity token of Google's", provider: gce.Provider, identity: googleIdentity(instance(n)),
		prover: byDocument(gce.NewProver(gce.SourceOptions{URL: server.URL}))} // on a machine: gce.SourceOptions{}
}

// byAzure is a cloud's machine that asks for attested documents.
func (w *world) byAzure(vmID string) *machine {
	server := w.azure.Serve(cloudtest.AzureMachine{VMID: vmID, SubscriptionID: azureSubscription})
	w.servers = append(w.servers, server)
	return &machine{what: "an attested document of Azure's", provider: azure.Provider, identity: attest.Identity("azure:" + azureSubscription + "/" + vmID),
		prover: byDocument(azure.NewProver(azure.SourceOptions{URL: server.URL}))} // on a machine: azure.SourceOptions{}
}

// byNitroTPM is a cloud's machine for whose TPM the hypervisor speaks.
func (w *world) byNitroTPM(instanceID string) *machine {
	ask := w.nitro.Asker(cloudtest.NitroMachine{InstanceID: instanceID, Region: region}) // on a machine: nitro.Tool("")
	return &machine{what: "an attestation document of its NitroTPM's", provider: nitro.Provider, identity: attest.Identity("aws:aws/" + region + "/" + instanceID),
		prover: byDocument(nitro.NewProver(nitro.SourceConfig{Ask: ask}))}
}

// byRole is a cloud's machine without a TPM that signs a request with the credentials of its role.
func (w *world) byRole(instanceID string) *machine {
	server := w.ec2.Serve(cloudtest.EC2Machine{AccountID: "123456789012", Region: region, InstanceID: instanceID, Role: "node"})
	w.servers = append(w.servers, server)
	return &machine{what: "an identity document and a request that its role signed", provider: ec2.Provider, identity: attest.Identity("aws:aws/" + region + "/" + instanceID),
		prover: byDocument(ec2.NewProver(ec2.SourceOptions{URL: server.URL}))} // on a machine: ec2.SourceOptions{}
}

// region is where the machines of AWS are.
const region = "eu-west-1"

// byDocument is a prover that holds nothing to release.
func byDocument(prover *document.Prover, err error) func() (attest.Prover, func() error, error) {
	return func() (attest.Prover, func() error, error) { return prover, func() error { return nil }, err }
}
