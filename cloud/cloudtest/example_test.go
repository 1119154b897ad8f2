package cloudtest_test

import (
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/oid"
)

// A machine's metadata server, asked as a program on the machine would.
func ExampleGCE_Serve() {
	cloud, err := cloudtest.OpenGCE()
	if err != nil {
		log.Fatal(err)
	}
	server := cloud.Serve(oid.GCEInstance{Zone: "europe-west1-b", ProjectNumber: 123456789012, ProjectID: "my-project", InstanceID: 4711, InstanceName: "vm-1"})
	defer server.Close()

	request, err := http.NewRequest("GET", server.URL+"/computeMetadata/v1/instance/id", nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Metadata-Flavor", "Google")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	id, err := io.ReadAll(response.Body)
	fmt.Println(string(id), err)
	fmt.Println(server.Requests())
	// Output:
	// 4711 <nil>
	// [GET /computeMetadata/v1/instance/id]
}

// The document of an instance, and the certificate that verifies it.
func ExampleEC2_Document() {
	cloud, err := cloudtest.OpenEC2("eu-west-1")
	if err != nil {
		log.Fatal(err)
	}
	pkcs7, err := cloud.Document(cloudtest.EC2Machine{AccountID: "123456789012", Region: "eu-west-1", InstanceID: "i-0123456789abcdef0"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%x..., by %s\n", pkcs7[:2], cloud.Certificates()["eu-west-1"].Subject)
	// Output: 3080..., by O=Amazon Web Services LLC,L=Seattle,ST=Washington State,C=US
}
