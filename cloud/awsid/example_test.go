package awsid_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
)

// The facts about an instance, with package cloudtest in the place of the cloud: on an
// instance the URL is left out, and the certificates are those that AWS publishes
// ([ParseCertificates]).
func ExampleVerify() {
	cloud, err := cloudtest.OpenEC2("eu-test-1", "us-test-2")
	if err != nil {
		log.Fatal(err)
	}
	server := cloud.Serve(cloudtest.EC2Machine{AccountID: "123456789012", Region: "eu-test-1", InstanceID: "i-0123456789abcdef0"})
	defer server.Close()

	source, err := awsid.NewSource(awsid.SourceOptions{URL: server.URL})
	if err != nil {
		log.Fatal(err)
	}
	pkcs7, err := source.Document(context.Background())
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
