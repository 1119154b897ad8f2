package oid_test

import (
	"errors"
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/oid"
)

func Example() {
	extension, err := oid.ProviderIDExtension("aws:///eu-west-1a/i-0123456789abcdef0")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%v %x\n", extension.Id, extension.Value[:8])

	id, err := oid.UnmarshalProviderID(extension.Value)
	fmt.Println(id, err)

	_, err = oid.ParseProviderID(nil)
	fmt.Println(errors.Is(err, oid.CheckProviderIDMissing))
	// Output:
	// 1.3.6.1.4.1.11129.2.1.21 0c256177733a2f2f
	// aws:///eu-west-1a/i-0123456789abcdef0 <nil>
	// true
}

func ExampleParse() {
	id, err := oid.Parse("2.23.133.8.1")
	fmt.Println(id == oid.TCGKpEKCertificate, id.Name(), err)

	_, err = oid.Parse("2.023")
	fmt.Println(err)
	// Output:
	// true tcg-kp-EKCertificate <nil>
	// oid-syntax: got "2.023", want arcs in decimal, as 1.2.3
}

func ExampleOID_ASN1() {
	id, ok := oid.SubjectAltName.ASN1()
	fmt.Println(id, ok)

	_, ok = oid.NodeAttestHello.ASN1()
	fmt.Println(oid.NodeAttestHello, ok)
	// Output:
	// 2.5.29.17 true
	// 2.25.274969308675442717258829974567625345604.1 false
}

func ExampleRead() {
	var b cryptobyte.Builder
	oid.Add(&b, oid.TCGAttestTPMCertify)
	der := b.BytesOrPanic()
	fmt.Printf("%x\n", der)

	s := cryptobyte.String(der)
	var id oid.OID
	if oid.Read(&s, &id) {
		fmt.Println(id)
	}
	// Output:
	// 06056781051401
	// 2.23.133.20.1
}

func ExampleGCEInstance() {
	instance := oid.GCEInstance{
		Zone:          "us-central1-a",
		ProjectNumber: 117485845609,
		ProjectID:     "example-project",
		InstanceID:    5779862431105934320,
		InstanceName:  "node-1",
	}
	value, err := instance.Marshal()
	if err != nil {
		fmt.Println(err)
		return
	}
	back, err := oid.ParseGCEInstance(value)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("gce:%s/%d\n", back.ProjectID, back.InstanceID)
	// Output: gce:example-project/5779862431105934320
}
