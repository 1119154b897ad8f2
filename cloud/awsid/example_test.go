package awsid_test

import (
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
)

// The facts about an instance, with package cloudtest in place of the cloud: on an
// instance the document is at /latest/dynamic/instance-identity/rsa2048 ([ParseBase64]), and the
// certificates are AWS' published ones ([ParseCertificates]).
func ExampleVerify() {
	cloud, err := cloudtest.OpenEC2("eu-test-1", "us-test-2")
	if err != nil {
		log.Fatal(err)
	}
	pkcs7, err := cloud.Document(cloudtest.EC2Machine{AccountID: "123456789012", Region: "eu-test-1", InstanceID: "i-0123456789abcdef0"})
	if err != nil {
		log.Fatal(err)
	}
	certificates := awsid.Certificates(cloud.Certificates())
	d, err := awsid.Verify(pkcs7, certificates, time.Now())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.AccountID, d.Region, d.InstanceID)

	// Another region's key signs the same words.
	forged, err := cloud.Sign("us-test-2", d.JSON, time.Now())
	if err != nil {
		log.Fatal(err)
	}
	_, err = awsid.Verify(forged, certificates, time.Now())
	check, _, _ := strings.Cut(err.Error(), ":")
	fmt.Println(check)
	// Output:
	// 123456789012 eu-test-1 i-0123456789abcdef0
	// awsid-signer
}

// The metadata server's answer is base64 without armour.
func ExampleParseBase64() {
	pkcs7, err := awsid.ParseBase64([]byte("MIAG\nCSqG\n"))
	fmt.Printf("%x %v\n", pkcs7, err)
	// Output: 308006092a86 <nil>
}

// An unverified document may be forged, but says which region's certificate is needed.
func ExampleParseInsecure() {
	cloud, err := cloudtest.OpenEC2("us-test-2")
	if err != nil {
		log.Fatal(err)
	}
	forged, err := cloud.Sign("us-test-2", []byte(`{"accountId":"123456789012","instanceId":"i-0123456789abcdef0","region":"eu-test-1","pendingTime":"2026-01-02T03:04:05Z"}`), time.Now())
	if err != nil {
		log.Fatal(err)
	}
	d, err := awsid.ParseInsecure(forged)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Region, d.InstanceID)
	// Output: eu-test-1 i-0123456789abcdef0
}
