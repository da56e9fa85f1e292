//! Prints the devices of a request, and prints them again after each change: read-metadata CLAIM REQUEST.
use serde_json::{Deserializer, Value};
use std::{env, error::Error, fs, path::Path, thread::sleep, time::Duration};

const VERSIONS: [&str; 2] = ["metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"];

/// Returns the first object of a known version: a file is a stream of objects, one for each version.
fn decode(text: &[u8]) -> Result<Value, Box<dyn Error>> {
    for document in Deserializer::from_slice(text).into_iter::<Value>() {
        let document = document?;
        if document["apiVersion"].as_str().map_or(false, |version| VERSIONS.contains(&version)) {
            return Ok(document);
        }
    }
    Err("no known version in a metadata file".into())
}

/// Returns the content of the files, one for each driver. A blank file has no content yet: then there is none.
fn read(folder: &Path) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<_> = entries.iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with("-metadata.json"));
    paths.sort();
    let texts = paths.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
    let is_blank = texts.iter().any(|text| text.iter().all(u8::is_ascii_whitespace));
    Ok(if is_blank { vec![] } else { texts })
}

fn show(document: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    for request in document["requests"].as_array().into_iter().flatten() {
        for device in request["devices"].as_array().into_iter().flatten() {
            let pci = &device["attributes"]["resource.kubernetes.io/pciBusID"]["string"];
            let network = &device["networkData"];
            let mut facts = vec![text(pci), text(&network["interfaceName"]), text(&network["hardwareAddress"])];
            facts.extend(network["ips"].as_array().into_iter().flatten().map(text));
            println!("{} {}", document["metadata"]["generation"], facts.join(" "));
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().collect();
    // The claim's name, or the pod's name for a template claim; the claim's name goes first.
    let (claim, request) = (&args[1], &args[2]);
    let root = env::var("METADATA_ROOT").unwrap_or_default();
    let folders = ["resourceclaims", "resourceclaimtemplates"]
        .map(|kind| format!("{root}/var/run/kubernetes.io/dra-device-attributes/{kind}/{claim}/{request}"));
    let (mut before, mut shown) = (vec![], vec![]);
    loop {
        let folder = folders.iter().map(Path::new).find(|path| path.exists());
        let now = folder.map_or(Ok(vec![]), read)?;
        // Files change in place: two reads that agree are of one version.
        if now == before && now != shown {
            if now.is_empty() {
                println!("no content");
            }
            for text in &now {
                show(&decode(text)?);
            }
            shown = now.clone();
        }
        before = now;
        sleep(Duration::from_millis(200));
    }
}
