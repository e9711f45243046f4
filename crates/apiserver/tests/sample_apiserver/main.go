// The sample API server of Kubernetes (wardle.example.com) as a program that needs a store and
// nothing else: no kube-apiserver, no authentication, everything allowed, and no admission, because
// admission plugins read from a kube-apiserver.
//
//	sample-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=127.0.0.1 --secure-port=0
//
// It prints "serving on ADDRESS:PORT" before it serves. Without --tls-cert-file it serves with a
// self-signed certificate that is kept in memory.
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/sample-apiserver/pkg/cmd/server"
)

func main() {
	ctx := genericapiserver.SetupSignalContext()
	options := server.NewWardleServerOptions(os.Stdout, os.Stderr)
	recommended := options.RecommendedOptions
	// No kube-apiserver is asked who a client is or what it may do: everything is allowed.
	recommended.Authentication = nil
	recommended.Authorization = nil
	recommended.CoreAPI = nil
	recommended.Admission = nil
	recommended.Features.EnablePriorityAndFairness = false
	recommended.SecureServing.ServerCert.CertDirectory = ""

	command := server.NewCommandStartWardleServer(ctx, options, false)
	command.RunE = func(*cobra.Command, []string) error { return run(options, command) }
	os.Exit(cli.Run(command))
}

func run(options *server.WardleServerOptions, command *cobra.Command) error {
	// A listener of its own, because the options take port 0 for "do not serve".
	serving := options.RecommendedOptions.SecureServing
	address := net.JoinHostPort(serving.BindAddress.String(), strconv.Itoa(serving.BindPort))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	serving.Listener = listener
	serving.BindPort = listener.Addr().(*net.TCPAddr).Port
	if err := options.Validate(nil); err != nil {
		return err
	}
	config, err := options.Config()
	if err != nil {
		return err
	}
	wardle, err := config.Complete().New()
	if err != nil {
		return err
	}
	prepared := wardle.GenericAPIServer.PrepareRun()
	fmt.Printf("serving on %s\n", listener.Addr())
	return prepared.RunWithContext(command.Context())
}
