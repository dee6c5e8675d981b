//! What tch-rs makes of an archive.
//!
//!     tch-archive                        the version of tch
//!     tch-archive list FILE.ot           a line a tensor: name in hexadecimal, kind, shape, SHA-256 of its values
//!     tch-archive save FILE OUT.ot       Tensor::save_multi of the tensors of an .ot or .safetensors

use sha2::{Digest, Sha256};
use std::{env, process};
use tch::{TchError, Tensor};

const VERSION: &str = "0.26.0"; // as in Cargo.toml

fn load(path: &str) -> Result<Vec<(String, Tensor)>, TchError> {
    if path.ends_with(".safetensors") {
        Tensor::read_safetensors(path)
    } else {
        Tensor::load_multi(path)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn list(path: &str) -> Result<(), TchError> {
    for (name, tensor) in load(path)? {
        let kind = tensor.f_kind()?;
        let mut data = vec![0; tensor.numel() * kind.elt_size_in_bytes()];
        tensor.f_contiguous()?.f_copy_data_u8(&mut data, tensor.numel())?;
        let shape: Vec<String> = tensor.size().iter().map(i64::to_string).collect();
        println!(
            "{} {kind:?} [{}] {}",
            hexadecimal(name.as_bytes()),
            shape.join(","),
            hexadecimal(&Sha256::digest(&data))
        );
    }
    Ok(())
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["list", file] => list(file),
        ["save", file, out] => load(file).and_then(|tensors| Tensor::save_multi(&tensors, out)),
        [] => {
            println!("{VERSION}");
            Ok(())
        }
        _ => {
            eprintln!("usage: tch-archive [list FILE.ot | save FILE OUT.ot]");
            process::exit(2)
        }
    };
    if let Err(error) = result {
        eprintln!("tch-archive: {error}");
        process::exit(1)
    }
}
